"""Protocols of the two sides of every round: algorithms and engines.

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
    """An engine, which trains and evaluates clients.

    For example a simulator on one machine, or real nodes.
    """

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
    """An engine that knows the layout of its model's vector."""

    @property
    def layout(self) -> Layout: ...


@dataclass(frozen=True)
class Facts:
    """An engine's device, its capacity and the settings it chose."""

    device: torch.device
    at_once: int  # clients that train side by side
    settings: dict[str, object] = field(default_factory=dict)  # what it chose for itself, which would choose the same again


@runtime_checkable
class DescribesItself(Protocol):
    """An engine that reports its device, its capacity and its settings."""

    @property
    def facts(self) -> Facts: ...


@runtime_checkable
class CountsCosts(Protocol):
    """An engine that counts its own costs.

    For example the bytes that really went over a wire.
    """

    @property
    def costs(self) -> Costs:
        """Return the sums since this engine was created."""
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
    """An algorithm whose round may write over its state.

    Only for a caller that does not use the previous state again.
    """

    def advance(self, state: Any, engine: Engine, rng: Rng) -> Any: ...


@runtime_checkable
class StartsFromSeveral(Protocol):
    """An algorithm whose `init` may want several independent initialisations, [n_models, D]."""

    @property
    def n_models(self) -> int | None:
        """Return the number of models; None means one model [D]."""
        ...


LearnsFrom = Literal["sums", "rewards", "updates"]


@runtime_checkable
class SamplesClients(Protocol):
    """An algorithm in which a share of the clients trains in a round."""

    @property
    def rate(self) -> float: ...


@runtime_checkable
class SaysWhatItNeeds(Protocol):
    """An algorithm that declares what it must see of single clients."""

    @property
    def learns_from(self) -> LearnsFrom:
        """Return what the server must see to run the algorithm.

        "sums": only sums of models; "rewards": also how each client's losses compare; "updates": each client's update.
        """
        ...


@runtime_checkable
class Warns(Protocol):
    """An algorithm that warns about the federation's size."""

    def warnings(self, n_clients: int) -> list[str]:
        """Return warnings about the federation's size.

        A federation that is too large is an InputError.
        """
        ...


@runtime_checkable
class NumbersClusters(Protocol):
    """An algorithm that counts its clusters without gathering their models."""

    def n_clusters(self, state: Any) -> int: ...

    def cluster_numbers(self, state: Any) -> Ids | None:
        """Return a number for each cluster that stays with it.

        Other clusters may come and go; None: the number is the row.
        """
        ...


@runtime_checkable
class TypesState(Protocol):
    """An algorithm that declares the type of its states.

    For others the annotation of `init` declares it.
    """

    @property
    def state_type(self) -> Any: ...


@dataclass(frozen=True)
class Observation:
    """An algorithm's explanation of one round, for the run's folder."""

    numbers: Mapping[str, float] = field(default_factory=dict)  # for a line of metrics
    splits: Mapping[str, Arrays] = field(default_factory=dict)  # evidence of the clusters divided in this round, by their number
    decisions: Sequence[Mapping[str, Any]] = ()  # attempts to divide: what was seen, whether it `divides`, and `why`


@runtime_checkable
class Observable(Protocol):
    """An algorithm that explains its rounds, and in the end its clusters."""

    def observe(self, state: Any) -> Observation: ...

    def tree(self, state: Any) -> list[dict[str, Any]]:
        """List all clusters of the run's history.

        Each has an id, parent, birth, end (None: a leaf), members and scores.
        """
        ...

    def matrices(self, state: Any) -> Mapping[str, Arrays]:
        """Return the matrices of each leaf's members, by file name."""
        ...


@runtime_checkable
class HoldsBack(Protocol):
    """An algorithm that keeps clients from training for a while."""

    def held_back(self, state: Any) -> Ids:
        """Return the clients that must not train now.

        They do not stand in for an absent client either.
        """
        ...


@runtime_checkable
class Grows(Protocol):
    """An algorithm that clients may join while it runs."""

    def room(self, state: Any) -> int | None:
        """Return the number of clients that may join.

        None: any number.
        """
        ...

    def grow(self, state: Any, rows: Ids) -> Any:
        """Add clients N, N + 1, ...

        Row [n] is the clustering's model that serves the new client.
        """
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
