"""What every algorithm and every engine agree on.

N clients in the federation, n in a cohort, M models, D floats per model, S local steps, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.errors import InputError

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Split = Literal["train", "test"]

MOST_MODELS = 1000  # that an algorithm begins with: all of them are held at once
SMALLEST_COHORT = 3  # the paper's privacy floor: an average over fewer clients reveals too much of each


@dataclass(frozen=True)
class Updates:
    """What the clients that answered sent back, one row per client.

    A model is one vector: its parameters first, then its floating-point buffers. `n_params` says where the parameters
    end (None: there are no buffers), because momentum, cosines and distances must not touch running statistics.
    """

    clients: Ids  # [n]
    models: Tensor  # [n, D]
    losses: Tensor  # [n, S]; S is the longest of the cohort, NaN where a client made fewer steps
    sizes: Tensor  # [n] training samples
    n_params: int | None = None
    rewards: Tensor | None = None  # [n] where clients keep their losses (then [n, 0]) to themselves; NaN: it did not arrive
    readings: Tensor | None = None  # [n, 4] beside rewards: `variances` and `first_losses` of each row's cohort; NaN: unknown

    def __len__(self) -> int:
        return len(self.clients)

    def of(self, members: Ids) -> Updates:
        """The rows of those `members` that answered, in the order of the rows."""
        return self.rows(np.isin(self.clients, members).nonzero()[0])

    def rows(self, rows: Ids) -> Updates:
        first, n = int(rows[0]) if len(rows) else 0, len(rows)
        at: Tensor | slice = slice(first, first + n)
        if not np.array_equal(rows, np.arange(first, first + n)):
            at = torch.from_numpy(rows)
        elif n == len(self):
            return self
        # Neighbours, as the members of a cluster are, need no copy.
        there = at if isinstance(at, slice) else on(self.models.device, rows)
        private = (None if x is None else x[at] for x in (self.rewards, self.readings))
        return Updates(self.clients[rows], self.models[there], self.losses[at], self.sizes[at], self.n_params, *private)

    @property
    def parameters(self) -> Tensor:
        """[n, n_params]: the models without their buffers."""
        return self.models[:, : self.n_params]


@dataclass(frozen=True)
class Scores:
    """How models did on clients' data, one row per client asked."""

    clients: Ids  # [n]
    loss: Floats  # [n] mean cross-entropy
    correct: Floats  # [n, C] right answers per true class
    total: Floats  # [n, C] samples per true class


@dataclass(frozen=True)
class Clustering:
    """Which model serves which client; FedAvg is the case M = 1."""

    models: Tensor  # [M, D]
    labels: Ids  # [N], the row of `models` that serves each client
    names: Ids | None = None  # [M], a number that stays with a cluster while rows move; None: the row itself

    def __post_init__(self) -> None:
        models, labels = self.models, self.labels
        if not isinstance(models, Tensor) or models.ndim != 2:
            raise InputError(f"a clustering has models [M, D], one row each, got {_kind(models)}")
        if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise InputError(f"a clustering has labels [N], an array of whole numbers, got {_kind(labels)}")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(models):
            span = f"{labels.min()} to {labels.max()}"
            raise InputError(f"labels are rows of the {len(models)} models of a clustering, 0..{len(models) - 1}, got {span}")

    @property
    def numbers(self) -> Ids:
        """[M]: what clusters are called in everything that a run leaves behind."""
        return np.arange(len(self.models)) if self.names is None else self.names


@dataclass(frozen=True)
class Rng:
    """The randomness of one round: a function of (seed, round) and of what it is for, never of what was drawn before.

    So a run resumes without storing a generator, and an algorithm that draws more does not change what another sees.
    """

    seed: int
    round: int

    def generator(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.round, *purpose])

    @property
    def training(self) -> int:
        """The seed of this round's local training, the same for every algorithm."""
        return int(np.random.SeedSequence([self.seed, self.round, 2**32 - 1]).generate_state(1, np.uint64)[0] >> 1)


class TooFewReplies(Exception):  # noqa: N818 - what happened, and no mistake of anybody
    """Too few clients answered for anything to be made of it; nothing has changed."""


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


def cohort_size(n_members: int, rate: float) -> int:
    """How many of `n_members` take part in a round: the rate, rounded half up, but at least 3 where there are 3.

    >>> cohort_size(100, 0.1), cohort_size(25, 0.1), cohort_size(2, 0.1)
    (10, 3, 2)
    """
    return min(n_members, max(int(np.floor(rate * n_members + 0.5)), SMALLEST_COHORT))


def sample(members: Ids, size: int, rng: np.random.Generator) -> Ids:
    """`size` distinct members, sorted: who is in a cohort matters, the order must not."""
    if size >= len(members):
        return np.sort(members)
    return np.sort(rng.choice(members, size, replace=False))


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


def on(device: torch.device, numbers: NDArray[Any]) -> Tensor:
    """`numbers` as a tensor on `device`, without waiting until the device has done what was asked of it before."""
    return torch.from_numpy(numbers).to(device, non_blocking=True)


def stacked(vectors: Sequence[Tensor]) -> Tensor:
    """[M, D]; no copy of vectors [D] that are the rows of one tensor already, in their order."""
    whole = vectors[0]._base
    if whole is not None and whole.is_contiguous() and whole.shape == (len(vectors), len(vectors[0])):
        first, row = whole.data_ptr(), whole[0].nbytes
        if all(v._base is whole and v.data_ptr() == first + i * row for i, v in enumerate(vectors)):
            return whole
    return torch.stack(list(vectors))


def several(models: Tensor, k: int, who: str) -> Tensor:
    """[k, D], checked: `who` starts from so many independent initialisations."""
    if models.ndim != 2 or len(models) != k:
        raise InputError(
            f"{who} and k={k} starts from {k} different models, so init wants [{k}, D], got {list(models.shape)}; "
            f"stack {k} independent initialisations"
        )
    return models


def _kind(x: object) -> str:
    shape = f" of shape {list(x.shape)} and {x.dtype}" if isinstance(x, np.ndarray | Tensor) else ""
    return f"{type(x).__name__}{shape}"


Rate = Annotated[float, "share of the clients that train in a round (at least 3 clients)"]


def check_rate(rate: float) -> None:
    if not 0 < rate <= 1:
        raise InputError(f"rate must be in (0, 1], got {rate}; it is the share of a cluster's clients that train in a round")


def check_models(k: int, name: str, what: str) -> None:
    if k < 1:
        raise InputError(f"{name} must be at least 1, got {k}; it is the number of {what}, and 1 is FedAvg")
    if k > MOST_MODELS:
        raise InputError(f"{name} must be at most {MOST_MODELS}, got {k}; it is the number of {what}, each as large as the model")
