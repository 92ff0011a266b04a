"""The two sides of every round: an algorithm, and the engine that trains its clients.

Each has a small contract that all fulfil. What only some can do is a protocol of its own with one or two methods; whoever
runs a federation checks for it once, with `isinstance`, before the first round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, get_type_hints, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.layout import Layout
from fedgwc.core.types import Clustering, Costs, Floats, Ids, Rng, Scores, Split, Updates
from fedgwc.core.work import Work

State = TypeVar("State")
Arrays = Mapping[str, NDArray[Any]]

# Engines


class Engine(Protocol):
    """Where clients train and are evaluated: a simulator on one machine, or real nodes."""

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        """Train each of `clients` from `models[which]`; a client that fails is a missing row."""
        ...

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        """Score `models[which]` on each client's own data; a client may be asked about several models.

        About their training data the algorithm itself asks; too few answers to that may be `TooFewReplies`.
        """
        ...


@runtime_checkable
class DescribesModel(Protocol):
    """An engine that knows where the tensors of its model lie in the vector."""

    @property
    def layout(self) -> Layout: ...


@dataclass(frozen=True)
class Facts:
    """What an engine runs on and how much it takes."""

    device: torch.device
    at_once: int  # clients that train side by side
    settings: dict[str, object] = field(default_factory=dict)  # what it chose for itself, which would choose the same again


@runtime_checkable
class DescribesItself(Protocol):
    """An engine that tells its device, its capacity and what it chose."""

    @property
    def facts(self) -> Facts: ...


@runtime_checkable
class CountsCosts(Protocol):
    """An engine that counts for itself what its work took, such as bytes that really went over a wire."""

    @property
    def costs(self) -> Costs:
        """Return the sums since this engine was made."""
        ...


# Algorithms


class Algorithm(Protocol[State]):
    """Hyper-parameters with pure functions; everything that changes lives in the state.

    An algorithm is a frozen dataclass, so it can be printed, compared, saved and overridden from a recipe.
    """

    def init(self, model: Tensor, n_clients: int, layout: Layout) -> State: ...

    def round(self, state: State, engine: Engine, rng: Rng) -> State: ...

    def clustering(self, state: State) -> Clustering: ...


@runtime_checkable
class UpdatesInPlace(Protocol):
    """A round that writes the next state over the given one, for an owner who does not look back."""

    def advance(self, state: Any, engine: Engine, rng: Rng) -> Any: ...


@runtime_checkable
class StartsFromSeveral(Protocol):
    """An algorithm whose `init` may want several independent initialisations, [n_models, D]."""

    @property
    def n_models(self) -> int | None:
        """How many; None: one model [D]."""
        ...


LearnsFrom = Literal["sums", "rewards", "updates"]


@runtime_checkable
class SamplesClients(Protocol):
    """An algorithm in which a share of the clients trains in a round."""

    @property
    def rate(self) -> float: ...


@runtime_checkable
class SaysWhatItNeeds(Protocol):
    """An algorithm that tells what of single clients it must see."""

    @property
    def learns_from(self) -> LearnsFrom:
        """Return "sums" of models alone, "rewards" (how losses compare) beside them, or single clients' "updates"."""
        ...


@runtime_checkable
class Warns(Protocol):
    """An algorithm that has something to say about the federation's size."""

    def warnings(self, n_clients: int) -> list[str]:
        """Return warnings about the federation's size; InputError if it is too large."""
        ...


@runtime_checkable
class NumbersClusters(Protocol):
    """An algorithm that counts its clusters without gathering their models."""

    def n_clusters(self, state: Any) -> int: ...

    def cluster_numbers(self, state: Any) -> Ids | None:
        """Return a number that stays with each cluster while others come and go; None: its row."""
        ...


@runtime_checkable
class TypesState(Protocol):
    """An algorithm that tells the type of its states; for others the annotation of `init` does."""

    @property
    def state_type(self) -> Any: ...


@dataclass(frozen=True)
class Observation:
    """What a round has shown, for the run's folder."""

    numbers: Mapping[str, float] = field(default_factory=dict)  # for a line of metrics
    splits: Mapping[str, Arrays] = field(default_factory=dict)  # evidence of the clusters divided in this round, by their number
    decisions: Sequence[Mapping[str, Any]] = ()  # attempts to divide: what was seen, whether it `divides`, and `why`


@runtime_checkable
class Observable(Protocol):
    """An algorithm that explains its rounds, and in the end its clusters."""

    def observe(self, state: Any) -> Observation: ...

    def tree(self, state: Any) -> list[dict[str, Any]]:
        """List all clusters that ever were: id, parent, born, ended (None: a leaf), members, scores."""
        ...

    def matrices(self, state: Any) -> Mapping[str, Arrays]:
        """Return what is known of each leaf's members, by a name for its file."""
        ...


@runtime_checkable
class HoldsBack(Protocol):
    """An algorithm that keeps clients from training for a while."""

    def held_back(self, state: Any) -> Ids:
        """Return clients that must not train now, not even in place of an absent one."""
        ...


@runtime_checkable
class Grows(Protocol):
    """An algorithm that clients may join while it runs."""

    def room(self, state: Any) -> int | None:
        """Return how many clients may join; None: any number."""
        ...

    def grow(self, state: Any, rows: Ids) -> Any:
        """Add clients N, N + 1, ...; rows [n] are those of the clustering's models that serve them."""
        ...


def state_type(algorithm: Algorithm[Any]) -> Any:
    """Return the type of an algorithm's states, by which checkpoints are read back."""
    if isinstance(algorithm, TypesState):
        return algorithm.state_type
    try:
        return get_type_hints(type(algorithm).init)["return"]
    except (KeyError, NameError) as error:
        name = type(algorithm).__name__
        raise InputError(
            f"checkpoints are read back by the type of an algorithm's state, which {name}.init does not tell ({error!r}); write "
            f"`def init(self, model: Tensor, n_clients: int, layout: Layout) -> {name}State`, with names that its module knows"
        ) from None


def losses_under(models: Tensor, clients: Ids, engine: Engine) -> tuple[Ids, Floats]:
    """Ask clients for the loss of every model on their training data: (who answered, sorted; [n, M]).

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
