"""Groups: the part in which clustered methods differ.

N clients, n of them in a round, G groups with a model each. A round asks in this order: `plan` (who trains which model),
`regroup` (to whose step each answer belongs), the server's step, `divide` (which groups fall apart after it).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from torch import Tensor

from fedgwc.algorithms.aggregate import Server
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import Arrays, Engine, LearnsFrom, Observation
from fedgwc.core.sampling import cohort_size, sample
from fedgwc.core.tensors import stack_rows
from fedgwc.core.types import Floats, Ids, Rng, Updates

Parents = Sequence[int] | None  # for each group the one whose model and momentum it goes on from; None: nothing has changed


@dataclass(frozen=True)
class Plan:
    """A round's cohort and the model that each client trains."""

    clients: Ids  # [n]
    models: Tensor  # [M, D]
    which: Ids  # [n] rows of `models`
    losses: Floats | None = None  # [n] training losses under these models, where clients were asked


@dataclass(frozen=True)
class Round:
    """A round's answers."""

    plan: Plan
    updates: Updates  # n answers
    weights: Floats  # [n] what each counts by in the server's mean
    rate: float  # share of the clients that train
    rng: Rng
    engine: Engine  # to ask clients more

    def groups_of(self, labels: Callable[[], Ids]) -> Ids:
        """Look up the group [n] of each answer.

        `labels` [N] are asked only where others answered than were planned.
        """
        asked, answered = self.plan.clients, self.updates.clients
        return self.plan.which if np.array_equal(answered, asked) else labels()[answered]


class GroupState(ABC):
    """The clients' groups and their statistics: a frozen dataclass that can be saved."""

    @abstractmethod
    def labels(self) -> Ids:
        """Return the group [N] whose model serves each client."""

    def n_unserving(self) -> int:
        """Return how many groups, the last ones, serve no client yet."""
        return 0

    def numbers(self) -> Ids | None:
        """Return each group's number [G], stable while other groups change.

        None: its index.
        """
        return None

    def with_layout(self, layout: Layout) -> Self:
        """Take note of the model's layers."""
        return self

    def copied(self) -> Self:
        """Copy the arrays that a round writes to."""
        return self

    def observe(self) -> Observation:
        """Explain the last round."""
        return Observation()

    def tree(self) -> list[dict[str, Any]]:
        """List all clusters there ever were.

        Empty for methods that never divide any.
        """
        return []

    def matrices(self) -> Mapping[str, Arrays]:
        """Return matrices over each group's members, by name."""
        return {}


S = TypeVar("S", bound=GroupState)


class Groups(ABC, Generic[S]):
    """A way to group clients: a frozen dataclass of settings.

    Methods that not every grouping needs have a default.
    """

    learns_from: ClassVar[LearnsFrom] = "sums"  # what of single clients the groups follow from

    @property
    def n_models(self) -> int | None:
        """Return the number of independent initialisations.

        `init` gets them as [n_models, D]; None: one model [D].
        """
        return None

    @abstractmethod
    def init(self, model: Tensor, n_clients: int, rate: float) -> tuple[Sequence[Tensor], S]:
        """Return the groups' first models and the first state."""

    @abstractmethod
    def plan(self, state: S, servers: Sequence[Server], rate: float, engine: Engine, rng: Rng) -> Plan | None:
        """Choose the cohort and its models; None: no client can train."""

    @abstractmethod
    def regroup(self, state: S, round: Round) -> tuple[S, Ids, Parents]:
        """Return the group [n] whose step each answer belongs to."""

    def divide(self, state: S, round: Round, group: Ids) -> tuple[S, Parents]:
        """Change groups after the server's step.

        `group` [n] is that of each answer.
        """
        return state, None

    @abstractmethod
    def grow(self, state: S, rows: Ids) -> tuple[S, Parents]:
        """Add clients N, N + 1, ... to the groups `rows` [n]."""

    def room(self, state: S) -> int | None:
        """Return how many clients may join; None: any number."""
        return None

    def warnings(self, n_clients: int) -> list[str]:
        """Return warnings about the federation's size.

        InputError if it is too large.
        """
        return []


def everybody(n_clients: int, rate: float, rng: Rng) -> Ids:
    """Draw a cohort from all clients."""
    return sample(np.arange(n_clients), cohort_size(n_clients, rate), rng.generator(0))


def plan_of(cohorts: Sequence[Ids], servers: Sequence[Server]) -> Plan:
    """Let each group's cohort train the group's model."""
    which = np.repeat(np.arange(len(cohorts)), [len(cohort) for cohort in cohorts])
    return Plan(np.concatenate(cohorts), stack_rows([s.theta for s in servers]), which)


def labels_of(members: Sequence[Ids]) -> Ids:
    """Return the group [N] of each client from the groups' members."""
    labels = np.empty(sum(map(len, members)), np.int64)
    labels[np.concatenate(members)] = np.repeat(np.arange(len(members)), [len(m) for m in members])
    return labels


def most_common(labels: Ids) -> Ids:
    """Put clients without a group (-1) into the largest group."""
    chosen = np.bincount(labels[labels >= 0], minlength=1)
    return np.where(labels < 0, chosen.argmax(), labels)


def joined(members: Ids, rows: Ids, group: int, first: int) -> Ids:
    """Add new clients to a group's members where their row names it.

    They are `first`, `first` + 1, ...
    """
    return np.concatenate([members, first + np.flatnonzero(rows == group)])  # numbers grow, so members stay sorted
