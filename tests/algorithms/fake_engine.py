"""Clients without data: an engine whose losses are written down, so that every trial of a division can be done in the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.algorithms.auto.readings import Readings
from fedgwc.core.types import Ids, Scores, Split, TooFewReplies, Updates


@dataclass(frozen=True)
class Question:
    """Clients are asked for their losses under models, for the `number`-th time."""

    number: int
    n_models: int
    clients: Ids  # [n]
    which: Ids  # [n] the model that each is asked about
    at: NDArray[Any] = field(repr=False)  # [n] where that model is
    loss: NDArray[Any] = field(repr=False)  # [n] its distance from the client's kind


Answer = Callable[[Question], NDArray[Any]]  # the losses that clients report


class FakeEngine:
    """Clients of two kinds: a model at 0 serves the first, one at 1 the second. Training moves a model all the way.

    kind [N] is 0 or 1 (or between). `silent` clients never reply, and `stand_ins` reply in place of others. `skips` is one
    (client, model) that is left out of the replies. `answer` changes what clients report about models, `update` what they send
    back after training from a model. `level` [N] are the losses while training, whatever the model; it may depend on the rounds
    before.
    """

    def __init__(
        self,
        kind: NDArray[Any],
        *,
        level: NDArray[Any] | Callable[[int], NDArray[Any]] | None = None,
        silent: Sequence[int] = (),
        stand_ins: Mapping[int, int] | None = None,
        skips: tuple[int, int] | None = None,
        answer: Answer = lambda question: question.loss,
        update: Callable[[Updates, Tensor], Updates] = lambda updates, start: updates,
    ) -> None:
        self.kind, self.level, self.silent, self.stand_ins, self.skips = kind, level, silent, stand_ins or {}, skips
        self.answer, self.update = answer, update
        self.asked: list[list[int]] = []  # about models, question by question
        self.trained: list[list[int]] = []  # round by round
        self.sent: list[Updates] = []

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        present, replies = self._present(clients)
        present = present[replies]
        n, target = len(present), torch.from_numpy(self.kind[present].astype(float))[:, None]
        losses = torch.from_numpy(self._losses(present, np.random.default_rng(seed)))
        updates = Updates(present, target.expand(n, models.shape[1]), losses, torch.ones(n))
        self.trained.append(clients.tolist())
        self.sent.append(self.update(updates, models[which[replies]]))
        return self.sent[-1]

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        assert split == "train"
        self.asked.append(np.unique(clients).tolist())
        present, replies = self._present(clients)
        replies &= [pair != self.skips for pair in zip(clients.tolist(), which.tolist(), strict=True)]
        present, row = present[replies], which[replies]
        n, at = len(present), models[row, 0].double().numpy()
        question = Question(len(self.asked), len(models), clients[replies], row, at, abs(at - self.kind[present]))
        return Scores(present, self.answer(question), np.zeros((n, 1)), np.ones((n, 1)))

    def _present(self, clients: Ids) -> tuple[Ids, NDArray[np.bool_]]:
        present = np.array([self.stand_ins.get(k, k) for k in clients.tolist()], np.int64)
        return present, ~np.isin(present, self.silent)

    def _losses(self, clients: Ids, rng: np.random.Generator) -> NDArray[Any]:
        if self.level is None:
            return 1 + 0.1 * rng.random((len(clients), 4))
        level = self.level(len(self.trained)) if callable(self.level) else self.level
        return level[clients][:, None] + 0.02 * rng.standard_normal((len(clients), 4))


# What clients report about models


def too_few_reply(question: Question) -> NDArray[Any]:
    raise TooFewReplies


def rough(by: float) -> Answer:
    """Of five clients in a row, losses under the first model are wrong by -1, -1, 1, 1 and 0 times `by`.

    Of those who wait the mean of the squares, over two fewer than they are, is the square of `by`.
    """
    return lambda q: q.loss + by * np.array([-1, -1, 1, 1, 0])[q.clients % 5] * (q.which == 0)


def alike_until(number: int) -> Answer:
    """Models serve everybody alike until somebody has been asked so often."""
    return lambda q: q.loss if q.number > number else np.ones(len(q.loss))


# What they send back after training


def drifting(updates: Updates, start: Tensor) -> Updates:
    """A step of their own leaves a third of the loss."""
    return replace(updates, losses=torch.cat([updates.losses[:, :1], updates.losses[:, 1:] / 3], 1))


def private(updates: Updates, start: Tensor) -> Updates:
    """Rewards and sums over all clients are told, and no losses."""
    seen = Readings(updates.losses.numpy())
    whole = torch.from_numpy(np.array([*seen.variances(), *seen.first_losses()])).expand(len(updates), 4)
    return replace(updates, losses=updates.losses[:, :0], rewards=torch.from_numpy(seen.rewards()), readings=whole)
