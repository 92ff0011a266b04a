"""Clients without data: where they are and what they lose is written down, so that a round can be done in the head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedgwc.algorithms.auto.readings import Readings
from fedgwc.algorithms.method import Method, MethodState
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import Algorithm
from fedgwc.core.types import Floats, Ids, Rng, Scores, Split, Updates
from fedgwc.core.work import Work


@dataclass
class Clients:
    """N clients, each at a point: training moves a model there, or a part `reach` of the way.

    They lose `levels` while they train, give or take `noise`, and under a model the square of its distance. Who is `silent`
    fails to train; who is `deaf` fails at any question.
    """

    points: ArrayLike  # [N] or [N, D]
    sizes: ArrayLike = 1  # [N] samples
    reach: float = 1.0
    levels: ArrayLike | Callable[[int], ArrayLike] = 1.0  # [N], or a function of the rounds so far
    noise: float = 0.0
    steps: int = 1
    silent: Sequence[int] = ()
    deaf: Sequence[int] = ()
    n_params: int | None = None
    private: bool = False  # rewards and what is computed of everybody's losses arrive, and no losses
    same_until: int = 0  # all models are equally good for the first so many questions
    trained: list[tuple[Ids, Ids, Tensor]] = field(default_factory=list)  # of each round: who, which model, from where [n, D]
    asked: list[tuple[Ids, Ids, Split]] = field(default_factory=list)

    def __post_init__(self) -> None:
        points = np.asarray(self.points, np.float64)
        self.at = torch.from_numpy(points.reshape(len(points), -1).copy())  # [N, D]
        self.samples = torch.from_numpy(np.broadcast_to(self.sizes, len(points)).copy())  # [N]

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        start = models[torch.from_numpy(which)]
        self.trained.append((clients, which, start))
        losses = torch.from_numpy(self._losses(clients, np.random.default_rng(seed)))
        local = start + self.reach * (self.at[clients] - start)
        updates = Updates(clients, local, losses, self.samples[clients], self.n_params)
        updates = updates.rows(np.flatnonzero(~np.isin(clients, [*self.silent, *self.deaf])))
        return kept_private(updates) if self.private else updates

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        self.asked.append((clients, which, split))
        loss = (models[torch.from_numpy(which)] - self.at[clients]).square().sum(1).numpy()
        if len(self.asked) <= self.same_until:
            loss = np.ones(len(clients))
        up = ~np.isin(clients, self.deaf)
        return Scores(clients[up], loss[up], np.zeros((up.sum(), 1)), np.ones((up.sum(), 1)))

    def _losses(self, clients: Ids, rng: np.random.Generator) -> Floats:
        levels = self.levels(len(self.trained)) if callable(self.levels) else self.levels
        levels = np.broadcast_to(np.asarray(levels, np.float64), len(self.at))
        losses: Floats = levels[clients][:, None] + self.noise * rng.standard_normal((len(clients), self.steps))
        return losses


def kept_private(updates: Updates) -> Updates:
    """What remains of an exchange in which nobody sees a single client's losses."""
    seen = Readings(updates.losses.numpy())
    whole = torch.from_numpy(np.array([*seen.variances(), *seen.first_losses()])).expand(len(updates), 4)
    return replace(updates, losses=updates.losses[:, :0], rewards=torch.from_numpy(seen.rewards()), readings=whole)


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def column(*values: float) -> Tensor:
    """Independent starts [k, 1] of models with one entry."""
    return vector(*values)[:, None]


def begin(algorithm: Algorithm[Any], model: Tensor, n_clients: int) -> Any:
    return algorithm.init(model, n_clients, Layout.unnamed(model.shape[-1]))


def play(algorithm: Algorithm[Any], engine: Any, state: Any, n_rounds: int, done: int = 0) -> list[Any]:
    """All states from the given one to that after round `n_rounds`."""
    states = [state]
    for number in range(done + 1, n_rounds + 1):
        states.append(algorithm.round(states[-1], engine, Rng(7, number)))
    return states


def state_of(algorithm: Method[Any], models: Sequence[Tensor], groups: Any) -> MethodState[Any]:
    """A state in which groups have these models."""
    first = begin(algorithm, torch.stack(list(models)) if algorithm.n_models else models[0], 100)
    return replace(first, servers=tuple(replace(first.servers[0], theta=m) for m in models), groups=groups)


def thetas(state: MethodState[Any]) -> list[Any]:
    """The groups' models, as numbers where they have one entry."""
    return [s.theta.tolist() if len(s.theta) > 1 else s.theta.item() for s in state.servers]


def velocities(state: MethodState[Any]) -> list[float | None]:
    return [None if s.velocity is None else s.velocity.item() for s in state.servers]


def counts(labels: NDArray[Any]) -> list[int]:
    """How many there are of each label."""
    return [int(n) for n in np.bincount(labels)]
