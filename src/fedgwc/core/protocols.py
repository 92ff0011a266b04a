"""The two sides of every round: an algorithm, and the engine that trains its clients."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from torch import Tensor

from fedgwc.core.types import Clustering, Floats, Ids, Rng, Scores, Split, Updates


class Engine(Protocol):
    """Where clients train and are evaluated: a simulator on one machine, or real nodes."""

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        """Train each of `clients` from `models[which]`; a client that fails is a missing row."""
        ...

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        """Score `models[which]` on each client's own data; a client may be asked about several models.

        About their training data the algorithm itself asks; too few answers to that may be `TooFewReplies`.
        """
        ...


State = TypeVar("State")


class Algorithm(Protocol[State]):
    """Hyper-parameters with two pure functions; everything that changes lives in the state.

    An algorithm is a frozen dataclass, so it can be printed, compared, saved and overridden from a recipe.
    """

    def init(self, model: Tensor, n_clients: int) -> State: ...

    def round(self, state: State, engine: Engine, rng: Rng) -> State: ...

    def clustering(self, state: State) -> Clustering: ...


def losses_under(models: Tensor, clients: Ids, engine: Engine) -> tuple[Ids, Floats]:
    """(who answered, sorted; [n, M] the loss of every model on their own training data).

    All questions go out in one call, so that a real client is asked once. Who left a question open is left out; others may
    have answered in the place of clients that are away.
    """
    M = len(models)
    scores = engine.evaluate(np.repeat(clients, M), models, np.tile(np.arange(M), len(clients)), split="train")
    answered, answers = np.unique(scores.clients, return_counts=True)
    answered = answered[answers == M]
    order = np.argsort(scores.clients, kind="stable")
    order = order[np.isin(scores.clients[order], answered)]
    return answered, scores.loss[order].reshape(-1, M)
