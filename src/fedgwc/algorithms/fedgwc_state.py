"""What FedGWC knows: clusters, how their members got along, in the present window of rounds and until then, and splits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedgwc.aggregate import Server
from fedgwc.core import Floats, Ids


@dataclass(frozen=True)
class Cluster:
    """K clients that share a model, and what is known of how they get along."""

    id: int
    parent: int | None
    born: int  # the round after which it came to be
    members: Ids  # [K]
    server: Server
    P: Floats  # [K, K] interaction matrix
    visits: Ids  # [K, K] how often each pair was sampled together; the diagonal counts clients
    gamma: Floats  # [K] Gaussian weights
    gamma2: Floats  # [K] the same running mean of squared rewards, for the interval of gamma
    mse: float = 1.0  # of consecutive P
    calm: int = 0  # rounds in a row with mse < eps
    attempts: int = 0  # to split
    ripe: int = 0  # pairs that have been seen as often as the next attempt asks
    scores: dict[int, float] = field(default_factory=dict)  # Davies-Bouldin by number of groups, of the split that made it
    # Of splits by windows; P, visits and the next six are of the present window.
    sides: Floats | None = None  # [K, K] kept as P is, of the sides on which losses lie
    spreads: Floats | None = None  # [K, K] likewise, of how restless they are
    between: float = 0.0  # variance of losses between clients, summed over rounds
    within: float = 0.0  # and between the steps of one client
    heard: int = 0  # rounds with losses of at least three clients
    apart: int = 0  # of these, rounds in which clients differed as much as a split asks
    distances: Floats | None = None  # [K, K] squared, between perception vectors, summed over the windows that are over
    cut: Ids | None = None  # [K] where the last of these would have divided the cluster

    @property
    def contrast(self) -> float:
        """How much more clients differ than the batches of one client do; 0: not at all."""
        return self.between / self.within - 1 if self.within > 0 else np.inf


@dataclass(frozen=True)
class Split:
    """A cluster that is no more."""

    id: int
    parent: int | None
    born: int
    ended: int
    members: Ids  # [K]
    labels: Ids  # [K] which child each went to
    scores: dict[int, float]  # that made this cluster
    P: Floats | None = None  # [K, K] at the split; kept, with the next, for the one round in which they are news
    distances: Floats | None = None  # [K, K]


@dataclass(frozen=True)
class FedGWCState:
    clusters: tuple[Cluster, ...]  # the leaves of the tree
    splits: tuple[Split, ...]  # its inner nodes
    sampled: Ids  # [N] rounds each client took part in
    n_born: int = 1


def copied(state: FedGWCState) -> FedGWCState:
    """With matrices of its own, as far as rounds write to them."""
    clusters = [replace(c, **{k: a.copy() for k, a in written(c).items()}) for c in state.clusters]
    return replace(state, clusters=tuple(clusters), sampled=state.sampled.copy())


def written(c: Cluster) -> dict[str, Any]:
    """What rounds write to, by name: means and counts of the present window, and distances until then."""
    named = {"P": c.P, "visits": c.visits, "sides": c.sides, "spreads": c.spreads, "distances": c.distances}
    return {name: a for name, a in named.items() if a is not None}
