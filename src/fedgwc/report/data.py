"""A run's results as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedgwc.algorithms.auto.state import Verdict
from fedgwc.core.types import Floats, Ids


@dataclass(frozen=True)
class Node:
    """A cluster in the tree of clusters."""

    id: int
    parent: int | None
    born: int
    ended: int | None  # None: a leaf
    members: Ids  # [K]
    scores: dict[int, float]  # Davies-Bouldin by number of groups, of the split that made it
    cosine: float | None = None  # CFL: the largest similarity across the split that ended it


@dataclass(frozen=True)
class Matrix:
    """Matrices over one cluster's clients: when it was split, or at the end."""

    cluster: int
    round: int | None  # None: the end
    members: Ids  # [K]
    P: Floats | None = None  # [K, K]; None: by client, not by pair of clients
    labels: Ids | None = None  # [K] which child each member went to
    visits: Ids | None = None  # [K, K], or by client [K]
    gamma: Floats | None = None  # [K]
    gamma2: Floats | None = None  # [K]
    distances: Floats | None = None  # [K, K]
    paths: Floats | None = None  # [K, m], by client
    echo: Floats | None = None  # [K, K]


@dataclass(frozen=True)
class Judged:
    """A verdict on a cluster at the end of a window of rounds.

    Whether it was divided, and why.
    """

    round: int
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class Run:
    """A run's results."""

    path: Path
    config: dict[str, Any]
    metrics: list[dict[str, Any]]  # one row per evaluation
    clusters: Ids  # [N] the final cluster of each client, by its number in the tree where there is a tree
    truth: Ids | None  # [N] known groups, numbered from 0
    sizes: Ids  # [N] training samples; 0: unknown
    counts: Floats | None  # [N, C]; None: unknown
    nodes: tuple[Node, ...] = ()
    matrices: tuple[Matrix, ...] = ()
    per_client: Mapping[str, NDArray[Any]] | None = None
    verdicts: tuple[Judged, ...] = ()
    names: tuple[str, ...] = ()  # [N] of the clients, where they have any

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def experiment(self) -> dict[str, Any]:
        return dict(self.config["experiment"])

    @property
    def algorithm(self) -> str:
        table = self.experiment.get("algorithm")
        return str(table.get("name", "?")) if isinstance(table, dict) else "?"

    @property
    def last(self) -> dict[str, Any]:
        return self.metrics[-1]

    @property
    def splits(self) -> list[Node]:
        return sorted((n for n in self.nodes if n.ended is not None), key=lambda n: (n.ended or 0, n.id))

    @property
    def leaves(self) -> list[int]:
        return sorted({int(c) for c in self.clusters})

    def children(self, node: int) -> list[Node]:
        return [n for n in self.nodes if n.parent == node]
