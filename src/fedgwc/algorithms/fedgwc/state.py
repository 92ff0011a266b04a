"""FedGWC's state: the tree of clusters and the statistics of each leaf."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.groups import GroupState, labels_of
from fedgwc.algorithms.perception import LARGE
from fedgwc.core.protocols import Observation
from fedgwc.core.types import Floats, Ids


@dataclass(frozen=True)
class Cluster:
    """K clients that share a model, and their interactions."""

    id: int
    parent: int | None
    born: int  # the round that made it
    members: Ids  # [K]
    P: Floats  # [K, K] interaction matrix
    visits: Ids  # [K, K] how often each pair was sampled together; the diagonal counts clients
    gamma: Floats  # [K] Gaussian weights
    gamma2: Floats  # [K] the same running mean of squared rewards, for the interval of gamma
    mse: float = 1.0  # running mean of the squared change of P
    converged: int = 0  # rounds in a row with an mse below the split rule's threshold
    attempts: int = 0  # to divide it
    scores: dict[int, float] = field(default_factory=dict)  # Davies-Bouldin by number of groups, of the division that made it

    @classmethod
    def root(cls, K: int, start: float) -> Cluster:
        """Create the root cluster of all clients, with `start` in every entry of P."""
        real, count = (np.float32, np.int32) if K > LARGE else (np.float64, np.int64)
        # Zeros take no memory until they are written to.
        P = np.full((K, K), start, real) if start else np.zeros((K, K), real)
        return cls(0, None, 0, np.arange(K), P, np.zeros((K, K), count), np.zeros(K), np.zeros(K))

    def with_members(self, members: Ids) -> Cluster:
        """Append clients without statistics."""
        more = (0, len(members) - len(self.members))
        P, visits = np.pad(self.P, [more, more]), np.pad(self.visits, [more, more])
        return replace(
            self, members=members, P=P, visits=visits, gamma=np.pad(self.gamma, more), gamma2=np.pad(self.gamma2, more)
        )

    def child(self, at: Ids, id: int, born: int, scores: dict[int, float]) -> Cluster:
        """Create a cluster of some members (indices `at`) with their part of P."""
        pairs = np.ix_(at, at)
        statistics = self.P[pairs], self.visits[pairs], self.gamma[at], self.gamma2[at]
        return Cluster(id, self.id, born, self.members[at], *statistics, scores=scores)


@dataclass(frozen=True)
class Split:
    """A cluster that was divided: an inner node of the tree."""

    id: int
    parent: int | None
    born: int
    ended: int  # the round that divided it
    members: Ids  # [K]
    labels: Ids  # [K] the child that each member went to
    scores: dict[int, float]  # of the division that made this cluster
    P: Floats | None = None  # [K, K] when it was divided; dropped once it has been recorded


@dataclass(frozen=True)
class FedGWCState(GroupState):
    clusters: tuple[Cluster, ...]  # the leaves of the tree
    splits: tuple[Split, ...]  # its inner nodes
    sampled: Ids  # [N] rounds each client took part in
    n_born: int = 1  # clusters made so far, so the next one's id

    def labels(self) -> Ids:
        return labels_of([c.members for c in self.clusters])

    def numbers(self) -> Ids:
        return np.array([c.id for c in self.clusters], np.int64)

    def copied(self) -> FedGWCState:
        clusters = tuple(replace(c, P=c.P.copy(), visits=c.visits.copy()) for c in self.clusters)
        return replace(self, clusters=clusters, sampled=self.sampled.copy())

    def observe(self) -> Observation:
        mse, attempts = float(np.mean([c.mse for c in self.clusters])), sum(c.attempts for c in self.clusters)
        news = {str(s.id): {"members": s.members, "labels": s.labels, "P": s.P} for s in self.splits if s.P is not None}
        return Observation({"mse": mse, "attempts": attempts}, news)

    def tree(self) -> list[dict[str, Any]]:
        names = ("id", "parent", "born", "ended", "scores")
        nodes: tuple[Split | Cluster, ...] = (*self.splits, *self.clusters)
        rows = [{name: getattr(n, name, None) for name in names} | {"members": n.members.tolist()} for n in nodes]
        return sorted(rows, key=lambda row: int(row["id"]))

    def matrices(self) -> dict[str, dict[str, NDArray[Any]]]:
        names = ("members", "visits", "gamma", "gamma2", "P")
        return {f"end-{c.id}": {name: getattr(c, name) for name in names} for c in self.clusters}
