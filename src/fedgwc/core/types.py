"""Types that every algorithm and every engine share.

N clients in the federation, n in a cohort, M models, D floats per model, S local steps, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.tensors import to_device

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Split = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Updates:
    """The answers of a round's clients, one row per client.

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
    which: Ids | None = None  # [n] the model each started from, where others may have answered than were asked

    def __len__(self) -> int:
        return len(self.clients)

    def of(self, members: Ids) -> Updates:
        """Select the rows of `members` that answered, in row order."""
        return self.rows(np.isin(self.clients, members).nonzero()[0])

    def rows(self, rows: Ids) -> Updates:
        first, n = int(rows[0]) if len(rows) else 0, len(rows)
        at: Tensor | slice = slice(first, first + n)
        if not np.array_equal(rows, np.arange(first, first + n)):
            at = torch.from_numpy(rows)
        elif n == len(self):
            return self
        # Neighbours, as the members of a cluster are, need no copy.
        there = at if isinstance(at, slice) else to_device(self.models.device, rows)
        rewards, readings = (None if x is None else x[at] for x in (self.rewards, self.readings))
        which = None if self.which is None else self.which[rows]
        parts = self.clients[rows], self.models[there], self.losses[at], self.sizes[at]
        return Updates(*parts, self.n_params, rewards, readings, which)

    @property
    def parameters(self) -> Tensor:
        """Return the models without their buffers, [n, n_params]."""
        return self.models[:, : self.n_params]


@dataclass(frozen=True)
class Scores:
    """Models' scores on clients' data, one row per client asked."""

    clients: Ids  # [n]
    loss: Floats  # [n] mean cross-entropy
    correct: Floats  # [n, C] right answers per true class
    total: Floats  # [n, C] samples per true class
    hits: NDArray[np.uint8] | None = None  # [sum of total] 1 where right, each row's samples in its client's order, where known


@dataclass(frozen=True)
class Costs:
    """The costs of training and evaluation since a run's beginning."""

    bytes_down: int = 0  # models sent to clients
    bytes_up: int = 0  # models and losses sent back
    client_updates: int = 0  # clients trained
    gradient_steps: int = 0
    evaluations: int = 0  # samples that clients scored because the algorithm asked (which model serves them best)
    samples: int = 0  # that clients trained on, each as often as a step used it; of clients with their own training 0

    def plus(self, **more: int) -> Costs:
        """Add to some of the sums."""
        return Costs(**{k: v + more.get(k, 0) for k, v in vars(self).items()})

    def since(self, earlier: Costs) -> dict[str, int]:
        """Return how much each sum has grown.

        >>> Costs(client_updates=5).since(Costs(client_updates=3))["client_updates"]
        2
        """
        return {k: v - getattr(earlier, k) for k, v in vars(self).items()}


@dataclass(frozen=True)
class Clustering:
    """The assignment of clients to models.

    FedAvg is the case M = 1.
    """

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
        """Return the clusters' numbers in a run's output, [M]."""
        return np.arange(len(self.models)) if self.names is None else self.names


@dataclass(frozen=True)
class Rng:
    """The randomness of one round.

    It is a function of (seed, round) and its purpose, never of earlier draws.

    So a run resumes without storing a generator, and an algorithm that draws more does not change what another sees.
    """

    seed: int
    round: int

    def generator(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.round, *purpose])

    @property
    def training(self) -> int:
        """Return the seed of this round's local training.

        It is the same for every algorithm.
        """
        return int(np.random.SeedSequence([self.seed, self.round, 2**32 - 1]).generate_state(1, np.uint64)[0] >> 1)


class TooFewReplies(Exception):  # noqa: N818 - what happened, and no mistake of anybody
    """Too few clients answered to use their answers.

    Nothing has changed.
    """


def _kind(x: object) -> str:
    shape = f" of shape {list(x.shape)} and {x.dtype}" if isinstance(x, np.ndarray | Tensor) else ""
    return f"{type(x).__name__}{shape}"
