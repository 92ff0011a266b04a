"""Sites: where a run's clients are, and the part of a run that depends on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from fedgwc.core.protocols import Algorithm, Engine, State
from fedgwc.core.types import Clustering, Floats, Ids, TooFewReplies
from fedgwc.core.work import LocalTraining
from fedgwc.runs.budget import Budget
from fedgwc.runs.folder import RunFolder

Memory = TypeVar("Memory")


@dataclass(frozen=True)
class Course:
    """The parts of a run that no site changes."""

    algorithm: Algorithm[Any]
    name: str  # of the algorithm
    title: str
    rounds: int
    seed: int
    every: int = 1  # rounds between evaluations
    budget: Budget = field(default_factory=Budget)  # it stops with the round that uses it up
    checkpoint_seconds: float = 0.0  # between checkpoints; 0: one after every round


@dataclass(frozen=True)
class Clients:
    """Metadata of the clients."""

    sizes: Ids  # [N] training samples; 0: unknown
    counts: Floats | None = None  # [N, C] samples per class
    groups: Ids | None = None  # [N] true groups
    names: tuple[str, ...] = ()  # N, or none


class Site(ABC, Generic[Memory]):
    """The place of a run's clients.

    Only what differs between sites is asked here; most has a default.
    """

    engine: Engine  # there once clients have been gathered
    memory_type: Any = type(None)  # of what the site keeps in checkpoints
    device: torch.device | str = "cpu"  # of the models
    local: LocalTraining | None = None  # of the clients; None: not known here, or the engine counts for itself
    in_place = True  # a round may write over the state it starts from, since none is tried again
    keeps_meeting_clients = False  # what is known of clients changes while the run goes on
    notes: Sequence[str] = ()  # what building it had to decide

    @abstractmethod
    def gather(self, resumed: bool) -> None:
        """Wait until there are enough clients, and build the engine."""

    @property
    @abstractmethod
    def n_clients(self) -> int:
        """Return the number of clients at present."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Return the run's description for its folder."""

    @abstractmethod
    def initial(self) -> Tensor:
        """Return the model [D], or models [M, D], where training starts."""

    @abstractmethod
    def clients(self) -> Clients:
        """Return the clients' metadata at present."""

    @abstractmethod
    def evaluate(self, number: int, clustering: Clustering) -> dict[str, Any]:
        """Return a line of metrics."""

    @abstractmethod
    def finish(self, folder: RunFolder | None, clustering: Clustering, failures: Ids) -> None:
        """Save the models and each client's scores under them."""

    def enter(self, number: int, algorithm: Algorithm[State], state: State) -> State:
        """Prepare an attempt at a round; clients may join."""
        return state

    def again(self, number: int, attempt: int, reason: TooFewReplies) -> None:
        """Wait before a round is tried again, or raise."""
        raise reason

    def tell_failures(self, number: int, clients: Sequence[int]) -> list[str]:
        """Return a message for each client that failed for the first time."""
        return []

    def remember(self) -> Memory | None:
        """Return the site's part of a checkpoint."""
        return None

    def recall(self, memory: Memory) -> None:
        """Restore the site's part of a checkpoint."""
