"""What FedGWC knows: clusters, how their members got along in the present window of rounds and the one before, and splits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fedgwc.aggregate import Server
from fedgwc.core import Floats, Ids


@dataclass(frozen=True)
class Window:
    """What K clients were seen to do in a stretch of rounds that is over."""

    P: Floats  # [K, K]
    visits: Ids  # [K, K]
    sides: Floats | None  # [K, K]
    between: float  # variance of losses between clients, summed over rounds
    within: float  # and between the steps of one client

    @property
    def contrast(self) -> float:
        """How much more clients differ than the batches of one client do; 0: not at all."""
        return self.between / self.within - 1 if self.within > 0 else np.inf


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
    sides: Floats | None = None  # [K, K] kept as P is, of the sides on which losses lie
    between: float = 0.0  # as in Window, so far
    within: float = 0.0
    before: Window | None = None  # the window before the present one


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
    sides: Floats | None = None  # [K, K]


@dataclass(frozen=True)
class FedGWCState:
    clusters: tuple[Cluster, ...]  # the leaves of the tree
    splits: tuple[Split, ...]  # its inner nodes
    sampled: Ids  # [N] rounds each client took part in
    n_born: int = 1


def window_of(c: Cluster) -> Window:
    return Window(c.P, c.visits, c.sides, c.between, c.within)


def joined(a: Window, b: Window) -> Window:
    """Both stretches as one; P and sides are means over visits."""
    visits = a.visits + b.visits
    share = b.visits / np.maximum(visits, 1)

    def mean(x: Floats, y: Floats) -> Floats:
        return np.asarray(x + (y - x) * share, x.dtype)

    sides = None if a.sides is None or b.sides is None else mean(a.sides, b.sides)
    return Window(mean(a.P, b.P), visits, sides, a.between + b.between, a.within + b.within)


def copied(state: FedGWCState) -> FedGWCState:
    """With matrices of its own. The window before the present one is never written to, so it is shared."""
    clusters = [
        replace(c, P=c.P.copy(), visits=c.visits.copy(), sides=None if c.sides is None else c.sides.copy())
        for c in state.clusters
    ]
    return replace(state, clusters=tuple(clusters), sampled=state.sampled.copy())
