"""Clients on other machines: an `Engine` over a Flower grid, so that every algorithm runs unchanged on real nodes.

What happens when things go wrong is written down in docs/deploy.md, and decided here:

- a client that does not answer, or whose reply is invalid, is a missing row; P and counts change for those who answered;
- a client that cannot be asked (its node is known to be away, or it is excluded) is replaced by a stand-in of its cluster;
- a model with fewer than `min_replies` valid answers gets none of them, so its cluster stays as it is;
- if that holds for every model, `TooFewReplies` is raised and nothing changes: the round is to be tried again;
- with private losses two more exchanges give rewards in place of losses; where they fail, the updates count and P stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

import numpy as np
import torch
from flwr.app import RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.types import Costs, Ids, Scores, Split, TooFewReplies, Updates
from fedgwc.core.work import Work
from fedgwc.flower.checks import UNREADABLE, Invalid
from fedgwc.flower.mailbox import Mailbox, Outgoing, Reply, error_reason, is_away
from fedgwc.flower.options import Options
from fedgwc.flower.private_server import PrivateLosses
from fedgwc.flower.roster import Roster
from fedgwc.flower.wire import Question, Rewarded, Scored, Summed, Task, Trained, Wire

log = logging.getLogger("fedgwc")

Answer = TypeVar("Answer", Trained, Scored, Summed, Rewarded)
Put = Callable[[list[Task]], list[Question]]
Read = Callable[[RecordDict, Sequence[Task]], dict[Task, Answer | Invalid]]
Found = dict[Task, Answer | Invalid]


class FlowerEngine:
    """Trains and evaluates on the nodes of a Flower `Grid`; the roster says who is where."""

    def __init__(
        self, grid: Grid, roster: Roster, wire: Wire, options: Options | None = None, private: PrivateLosses | None = None
    ) -> None:
        self.roster, self.wire, self.options, self.private = roster, wire, options or Options(), private
        self.mailbox = Mailbox(grid, self.options.poll)
        self.costs = Costs()  # bytes as they went over the wire
        self.number = 0  # of the round
        self.labels: Ids = np.zeros(len(roster), np.int64)  # [N], for stand-ins
        self.n_answered = 0  # since `begin_round`
        self.tested: list[tuple[float, int, int]] = []  # likewise
        self._losses: list[float] = []  # likewise, of each client that told them

    def begin_round(self, number: int, labels: Ids) -> None:
        """Begin a round: its number, and each client's cluster [N], for stand-ins."""
        self.number = self.roster.round = number
        self.labels = labels
        self.n_answered, self.tested, self._losses = 0, [], []

    @property
    def median_loss(self) -> float:
        """Return the median client's training loss since `begin_round`; NaN: private."""
        return float(np.median(self._losses)) if self._losses else np.nan

    # The Engine protocol

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        if work is not None and (work.anchor is not None or work.moves is not None):
            raise InputError(
                "nodes train whole models towards the one that was sent: an anchor or a mask cannot be sent to them yet"
            )
        tasks = self._with_stand_ins(clients, which, seed, among=self.labels)
        answers = self._ask(tasks, lambda t: self.wire.train(t, models, seed, self.number), self.wire.trained)
        self.tested += [a.test for a in answers if a.test is not None]
        before, rounding = dict(self.roster.invalid), torch.finfo(models.dtype).eps
        try:
            enough = self._of_answered_models(answers, len(models))
            private = self.private and self.private.rewards_and_readings(enough, self._ask, self.number, rounding)
        finally:  # valid are those whose replies were so in every exchange
            for a in answers:
                if self.roster.invalid.get(a.task.number) == before.get(a.task.number):
                    self.roster.record_valid(a.task.number, a.size, a.counts)
        updates = self._updates(enough, models)
        if private:
            rewards, readings = map(torch.from_numpy, private)
            updates = replace(updates, rewards=rewards, readings=readings)
        steps = [a.kept.steps if a.kept else len(a.losses) for a in enough]
        local = self.wire.local
        samples = sum(n * min(local.batch, a.size) for n, a in zip(steps, enough, strict=True)) if local else 0
        self.costs = self.costs.plus(client_updates=len(updates), gradient_steps=sum(steps), samples=samples)
        self.n_answered += len(updates)
        self._losses += [float(np.nanmean(a.losses)) for a in enough if len(a.losses)]
        return updates

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        clients, which = np.asarray(clients, np.int64), np.asarray(which, np.int64)
        if split == "train" and not self.wire.compares_models:
            raise TooFewReplies("clients of this app cannot compare models in private")
        if split == "train":  # the algorithm asks a cohort: stand-ins may answer in its place, all questions of one client alike
            cohort = np.unique(clients)
            present = {t.row: t.number for t in self._with_stand_ins(cohort, np.arange(len(cohort)), self.number)}
            stand_in = [present.get(int(np.searchsorted(cohort, k)), -1) for k in clients]
            clients = np.array(stand_in, np.int64)
        can = np.isin(clients, self.roster.available())
        scored = self._score(self._tasks(clients[can], which[can]), models, split)
        if split == "train":
            if len({s.task.number for s in scored}) < self.options.min_replies:
                raise TooFewReplies(f"{len(scored)} answers to an evaluation, {self.options.min_replies} clients are needed")
            self.costs = self.costs.plus(evaluations=int(sum(s.total.sum() for s in scored)))
        return _scores(scored)

    def losses(self, names: Sequence[str], models: Tensor) -> dict[str, Tensor]:
        """Return newcomers' losses [M] of all models, by name."""
        first = len(self.roster)
        tasks = [Task(first + i, name, m) for i, name in enumerate(names) for m in range(len(models))]
        found: dict[str, list[float]] = {}
        for s in self._score(tasks, models, "train"):
            found.setdefault(s.task.name, []).append(s.loss)
        return {name: torch.tensor(x).nan_to_num(nan=torch.inf) for name, x in found.items() if len(x) == len(models)}

    # Who is asked

    def _with_stand_ins(self, clients: Ids, which: Ids, seed: int, among: Ids | None = None) -> list[Task]:
        """Replace absent clients of a cohort by stand-ins with the same label.

        Without labels (`among`) anybody may stand in.

        Nobody stands in for a client that is to train another model than its label's: one of its own, or of newcomers.
        """
        available = self.roster.available()
        draw = np.random.default_rng([seed, self.number]).permutation(np.setdiff1d(available, clients))
        cohort = np.array(clients, np.int64)
        for i in np.flatnonzero(~np.isin(cohort, available)):
            fits = draw if among is None else draw[among[draw] == which[i]]
            if len(fits) and (among is None or among[cohort[i]] == which[i]):
                names = self.roster.names[fits[0]], self.roster.names[cohort[i]]
                log.info("round %d: client %s stands in for %s", self.number, *names)
                cohort[i], draw = fits[0], draw[draw != fits[0]]
        here = np.isin(cohort, available)
        return self._tasks(cohort[here], np.asarray(which)[here])

    def _tasks(self, clients: Ids, which: Ids) -> list[Task]:
        return [Task(int(k), self.roster.names[k], int(m)) for k, m in zip(clients, which, strict=True)]

    def _score(self, tasks: list[Task], models: Tensor, split: Split) -> list[Scored]:
        return self._ask(tasks, lambda t: self.wire.evaluate(t, models, split, self.number), self.wire.scored)

    # One exchange

    def _ask(self, tasks: list[Task], put: Put, read: Read[Answer]) -> list[Answer]:
        """Ask nodes; return all valid answers in the tasks' order."""
        at, order = self.roster.node, {task: i for i, task in enumerate(tasks)}
        by_node = groupby(sorted(tasks, key=lambda t: (at[t.name], t.number, t.row)), key=lambda t: at[t.name])
        asked = [(node, question) for node, mine in by_node for question in put(list(mine))]
        before = self.mailbox.bytes_down, self.mailbox.bytes_up
        outgoing = [Outgoing(node, question.kind, question.content) for node, question in asked]
        replies = self.mailbox.exchange(outgoing, self.options.deadline, str(self.number))
        self.costs = self.costs.plus(bytes_down=self.mailbox.bytes_down - before[0], bytes_up=self.mailbox.bytes_up - before[1])
        answers: list[Answer] = []
        for (node, question), reply in zip(asked, replies, strict=True):
            answers += self._without_invalid(self._read(node, question.tasks, reply, read))
        return sorted(answers, key=lambda a: order[a.task])

    def _read(self, node: int, tasks: tuple[Task, ...], reply: Reply | None, read: Read[Answer]) -> dict[Task, Answer | Invalid]:
        if reply is None or is_away(reply):
            self.roster.no_answer(node)
            return {}
        self.roster.answered(node)
        if isinstance(reply, Invalid):
            return dict.fromkeys(tasks, reply)
        if reply.has_error():  # it is there but could not do it: missing rows, and nothing to hold against its clients
            log.warning("round %d: the app on node %d failed: %.300r", self.number, node, error_reason(reply.error))
            self.roster.ask_again.add(node)
            return {}
        try:
            return read(reply.content, tasks)
        except Invalid as reason:
            return dict.fromkeys(tasks, reason)
        except UNREADABLE as error:
            return dict.fromkeys(tasks, Invalid(f"it cannot be read: {error!r}"))

    def _without_invalid(self, answers: Found[Answer]) -> list[Answer]:
        """Drop and record the answers of clients that sent an invalid one."""
        bad = {task.number: answer for task, answer in answers.items() if isinstance(answer, Invalid)}
        for number, reason in bad.items():
            if number < len(self.roster):  # somebody who is not in yet has no record
                self.roster.record_invalid(number, str(reason))
        return [a for task, a in answers.items() if not isinstance(a, Invalid) and task.number not in bad]

    # What is kept

    def _of_answered_models(self, answers: list[Trained], n_models: int) -> list[Trained]:
        """Keep the answers for models that got enough of them."""
        least = self.options.min_replies
        got = np.bincount(np.array([a.task.row for a in answers], np.int64), minlength=n_models)
        few = np.flatnonzero((got > 0) & (got < least))
        for m in few:
            log.warning(
                "round %d: model %d got %d of %d answers and stays as it is", self.number, m, got[m], self.options.min_replies
            )
        if not (got >= self.options.min_replies).any():
            raise TooFewReplies(f"{len(answers)} valid answers; a model needs {self.options.min_replies}")
        return [a for a in answers if a.task.row not in few]

    def _updates(self, answers: list[Trained], models: Tensor) -> Updates:
        clients = np.array([a.task.number for a in answers], np.int64)
        losses = np.full((len(answers), max(len(a.losses) for a in answers)), np.nan)
        for i, a in enumerate(answers):
            losses[i, : len(a.losses)] = a.losses
        trained = torch.from_numpy(np.stack([a.model for a in answers])).to(models)
        sizes = torch.tensor([a.size for a in answers])
        which = np.array([a.task.row for a in answers], np.int64)
        return Updates(clients, trained, torch.from_numpy(losses).to(models.dtype), sizes, self.wire.n_params, which=which)


def _scores(scored: list[Scored]) -> Scores:
    """Collect scores, by class if all clients told them so."""
    clients, loss = np.array([s.task.number for s in scored], np.int64), np.array([s.loss for s in scored], np.float64)
    widths = {len(s.total) for s in scored} or {1}
    if len(widths) > 1:
        scored = [replace(s, correct=s.correct.sum(keepdims=True), total=s.total.sum(keepdims=True)) for s in scored]
    shape = (len(scored), min(widths))
    return Scores(clients, loss, np.reshape([s.correct for s in scored], shape), np.reshape([s.total for s in scored], shape))
