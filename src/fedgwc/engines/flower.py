"""Clients on other machines: an `Engine` over a Flower grid, so that every algorithm runs unchanged on real nodes.

What happens when things go wrong is written down in docs/deploy.md, and decided here:

- a client that does not answer, or whose reply is invalid, is a missing row; P and counts change for those who answered;
- a client that cannot be asked (its node is known to be away, or it is excluded) is replaced by a stand-in of its cluster;
- a model with fewer than `min_replies` valid answers gets none of them, so its cluster stays as it is;
- if that holds for every model, `TooFewReplies` is raised and nothing changes: the round is to be tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

import numpy as np
import torch
from flwr.app import Message, RecordDict
from torch import Tensor

from fedgwc.core import Ids, Scores, Split, Updates
from fedgwc.engines.meter import Costs, Reported
from fedgwc.flower.checks import Invalid
from fedgwc.flower.options import Options
from fedgwc.flower.post import Letter, Post
from fedgwc.flower.roster import Roster
from fedgwc.flower.wire import Question, Scored, Task, Trained, Wire

log = logging.getLogger("fedgwc")

AWAY = (3, 4, 5)  # Flower's error codes for a message or reply that is unavailable, and for a node that is
Answer = TypeVar("Answer", Trained, Scored)


class TooFewReplies(Exception):
    """No model got as many valid answers as `min_replies` asks for; nothing has changed."""


class FlowerEngine:
    """Trains and evaluates on the nodes of a Flower `Grid`; the roster says who is where."""

    def __init__(
        self, post: Post, roster: Roster, wire: Wire, options: Options | None = None, costs: Costs | None = None
    ) -> None:
        self.post, self.roster, self.wire = post, roster, wire
        self.options = options or Options()
        self.costs = costs or Costs()
        self.number = 0  # of the round
        self.labels: Ids = np.zeros(len(roster), np.int64)  # [N], for stand-ins
        self.reported: list[Reported] = []  # since `begin`
        self.tested: list[tuple[float, int, int]] = []

    def begin(self, number: int, labels: Ids) -> None:
        """Before each round: its number, and which model serves whom (who may stand in for whom)."""
        self.number, self.labels = number, labels
        self.reported, self.tested = [], []

    # The Engine protocol

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        tasks = self._present(clients, which, seed, among=self.labels)
        answers = self._ask(tasks, "train", lambda t: self.wire.train(t, models, seed, self.number), self.wire.trained)
        for a in answers:
            self.roster.good(a.task.number, a.size, a.counts)
        self.tested += [a.test for a in answers if a.test is not None]
        updates, rows = self._updates(self._enough(answers, len(models)), models)
        steps = int(np.isfinite(updates.losses.numpy()).sum())
        self.costs = self.costs.plus(client_updates=len(updates), gradient_steps=steps)
        self.reported.append(Reported(updates.clients, rows, updates.losses.numpy()))
        return updates

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        clients, which = np.asarray(clients, np.int64), np.asarray(which, np.int64)
        if split == "train":  # the algorithm asks a cohort: stand-ins may answer in its place, all questions of one client alike
            cohort = np.unique(clients)
            present = {t.row: t.number for t in self._present(cohort, np.arange(len(cohort)), self.number)}
            stand_in = [present.get(int(np.searchsorted(cohort, k)), -1) for k in clients]
            clients = np.array(stand_in, np.int64)
        can = np.isin(clients, self.roster.available())
        scored = self._score(
            [Task(int(k), self.roster.names[k], int(m)) for k, m in zip(clients[can], which[can], strict=True)], models, split
        )
        if split == "train":
            if len({s.task.number for s in scored}) < self.options.min_replies:
                raise TooFewReplies(f"{len(scored)} answers to an evaluation, {self.options.min_replies} clients are needed")
            self.costs = self.costs.plus(evaluations=int(sum(s.total.sum() for s in scored)))
        return _scores(scored)

    def losses(self, names: Sequence[str], models: Tensor) -> dict[str, Tensor]:
        """[M] per client: the loss of each model on its training data, for clients that have no number yet."""
        first = len(self.roster)
        tasks = [Task(first + i, name, m) for i, name in enumerate(names) for m in range(len(models))]
        found: dict[str, list[float]] = {}
        for s in self._score(tasks, models, "train"):
            found.setdefault(s.task.name, []).append(s.loss)
        return {name: torch.tensor(x).nan_to_num(nan=torch.inf) for name, x in found.items() if len(x) == len(models)}

    # Who is asked

    def _present(self, clients: Ids, which: Ids, seed: int, among: Ids | None = None) -> list[Task]:
        """The cohort as it can be asked; a stand-in has the same label as the row it trains, or any where labels do not count."""
        free = np.setdiff1d(self.roster.available(), clients)
        here = np.isin(clients, self.roster.available())
        tasks = [Task(int(k), self.roster.names[k], int(m)) for k, m in zip(clients[here], which[here], strict=True)]
        draw = np.random.default_rng([seed, self.number]).permutation(free)
        for k, m in zip(clients[~here], which[~here], strict=True):
            fits = draw if among is None else draw[among[draw] == m]
            if len(fits):
                log.info("round %d: client %s stands in for %s", self.number, self.roster.names[fits[0]], self.roster.names[k])
                tasks.append(Task(int(fits[0]), self.roster.names[fits[0]], int(m)))
                draw = draw[draw != fits[0]]
        return sorted(tasks, key=lambda t: t.number)

    def _score(self, tasks: list[Task], models: Tensor, split: Split) -> list[Scored]:
        return self._ask(tasks, "evaluate", lambda t: self.wire.evaluate(t, models, split, self.number), self.wire.scored)

    # One exchange

    def _ask(
        self,
        tasks: list[Task],
        kind: str,
        put: Callable[[list[Task]], list[Question]],
        read: Callable[[RecordDict, Sequence[Task]], list[Answer | Invalid]],
    ) -> list[Answer]:
        """All valid answers, in the order of the clients."""
        at = self.roster.node
        by_node = groupby(sorted(tasks, key=lambda t: (at[t.name], t.number, t.row)), key=lambda t: at[t.name])
        asked = [(node, q) for node, mine in by_node for q in put(list(mine))]
        before = self.post.bytes_down, self.post.bytes_up
        letters = [Letter(node, kind, q.content) for node, q in asked]
        replies = self.post.exchange(letters, self.options.deadline, str(self.number))
        self.costs = self.costs.plus(bytes_down=self.post.bytes_down - before[0], bytes_up=self.post.bytes_up - before[1])
        answers: list[Answer] = []
        for (node, question), reply in zip(asked, replies, strict=True):
            answers += self._read(node, question, reply, read)
        return sorted(answers, key=lambda a: (a.task.number, a.task.row))

    def _read(
        self,
        node: int,
        question: Question,
        reply: Message | None,
        read: Callable[[RecordDict, Sequence[Task]], list[Answer | Invalid]],
    ) -> list[Answer]:
        if reply is None or (reply.has_error() and reply.error.code in AWAY):
            self.roster.absent(node)
            return []
        try:
            if reply.has_error():
                raise Invalid(f"its app failed: {(reply.error.reason or str(reply.error.code)).strip().splitlines()[-1]}")
            answers = read(reply.content, question.tasks)
        except Invalid as reason:
            answers = [reason] * len(question.tasks)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, MemoryError) as error:
            answers = [Invalid(f"it cannot be read: {error!r}")] * len(question.tasks)
        return self._judge(question, answers)

    def _judge(self, question: Question, answers: Sequence[Answer | Invalid]) -> list[Answer]:
        good = [a for a in answers if not isinstance(a, Invalid)]
        heard = {a.task for a in good}
        blamed = [t for t in question.tasks if t not in heard]
        for task, reason in zip(blamed, [a for a in answers if isinstance(a, Invalid)], strict=False):
            if task.number < len(self.roster):  # somebody who is not in yet has no record
                self.roster.strike(task.number, str(reason))
        return good

    # What is kept

    def _enough(self, answers: list[Trained], n_models: int) -> list[Trained]:
        """Answers for models that got enough of them."""
        got = np.bincount([a.task.row for a in answers], minlength=n_models)
        few = np.flatnonzero((got > 0) & (got < self.options.min_replies))
        for m in few:
            log.warning(
                "round %d: model %d got %d of %d answers and stays as it is", self.number, m, got[m], self.options.min_replies
            )
        if not (got >= self.options.min_replies).any():
            raise TooFewReplies(f"{len(answers)} valid answers; a model needs {self.options.min_replies}")
        return [a for a in answers if a.task.row not in few]

    def _updates(self, answers: list[Trained], models: Tensor) -> tuple[Updates, Ids]:
        clients = np.array([a.task.number for a in answers], np.int64)
        losses = np.full((len(answers), max(len(a.losses) for a in answers)), np.nan)
        for i, a in enumerate(answers):
            losses[i, : len(a.losses)] = a.losses
        trained = torch.from_numpy(np.stack([a.model for a in answers])).to(models)
        sizes = torch.tensor([a.size for a in answers])
        updates = Updates(clients, trained, torch.from_numpy(losses).to(models.dtype), sizes, self.wire.n_params)
        return updates, np.array([a.task.row for a in answers], np.int64)


def _scores(scored: list[Scored]) -> Scores:
    """By class if every client answered so, else all classes in one column."""
    one = any(len(s.total) == 1 for s in scored)
    clients, loss = np.array([s.task.number for s in scored], np.int64), np.array([s.loss for s in scored])
    width = max([len(s.total) for s in scored], default=1)
    columns = (
        [np.array([s.correct for s in scored]), np.array([s.total for s in scored])]
        if not one
        else [np.array([[s.correct.sum()] for s in scored]), np.array([[s.total.sum()] for s in scored])]
    )
    correct, total = (c.reshape(len(scored), 1 if one else width) for c in columns)
    return Scores(clients, loss, correct, total)
