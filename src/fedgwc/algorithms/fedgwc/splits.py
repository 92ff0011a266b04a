"""Split rules: the paper's, of which the release's is a setting."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Protocol

import numpy as np

from fedgwc.algorithms.fedgwc.clustering import Score, fedgw_cluster
from fedgwc.algorithms.fedgwc.interactions import Features, affinity
from fedgwc.algorithms.fedgwc.state import Cluster
from fedgwc.algorithms.spectral import Assign
from fedgwc.core.errors import InputError
from fedgwc.core.search import Between
from fedgwc.core.types import Floats, Ids

Attempt = tuple[Cluster, Ids | None, dict[int, float]]  # the cluster after it, groups [K] or None, Davies-Bouldin by their number


class SplitRule(Protocol):
    """A rule that decides from interactions whether and how a cluster is divided."""

    def watch(self, cluster: Cluster, change: Floats, alpha: float) -> Cluster:
        """Note how much the sampled entries of P have changed in a round."""
        ...

    def affinity(self, P: Floats) -> Floats:
        """Compare the clients of an interaction matrix [K, K]."""
        ...

    def attempt(self, cluster: Cluster, cohort: int, seed: int) -> Attempt:
        """Divide the cluster if its interactions have converged and show groups."""
        ...


@dataclass(frozen=True)
class PaperSplit:
    """Division once the mean squared change of P is small and Davies-Bouldin finds groups; the defaults are the paper's text."""

    eps: Annotated[float, "P has converged when its mean squared change is below this", Between(1e-7, 1e-3, log=True)] = 1e-5
    beta: Annotated[float, "spread of the RBF kernel", Between(0.05, 5.0, log=True)] = 0.5
    n_max: Annotated[int, "most groups that are looked for"] = 5
    min_size: Annotated[int, "smallest group"] = 1
    mse_over: Annotated[Literal["matrix", "touched"], "entries whose squared change is averaged"] = "matrix"
    patience: Annotated[Literal["none", "sweep"], "sweep: converged for cluster size / cohort size rounds in a row"] = "none"
    features: Annotated[Features, "perception vectors are rows or columns of P"] = "rows"
    scaled: Annotated[bool, "bring P to [0, 1] by its smallest and largest entry first"] = False
    score: Annotated[Score, "what Davies-Bouldin looks at: rows of the affinity, or of its spectral embedding"] = "affinity"
    assign: Annotated[Assign, "how the embedding becomes labels"] = "kmeans"
    groups_by_cohort: Annotated[bool, "at most cluster size / cohort size groups"] = False
    strict: Annotated[bool, "Davies-Bouldin below 1, not at most 1"] = False

    def __post_init__(self) -> None:
        if not (0 < self.eps < math.inf and 0 < self.beta < math.inf):
            raise InputError(f"eps and beta must be positive and finite, got {self.eps} and {self.beta}")
        if self.n_max < 2 or self.min_size < 1:
            raise InputError(f"n_max must be at least 2 and min_size at least 1, got {self.n_max} and {self.min_size}")

    def watch(self, cluster: Cluster, change: Floats, alpha: float) -> Cluster:
        squared = change**2
        mse = squared.mean() if self.mse_over == "touched" else squared.sum() / cluster.P.size
        average = float((1 - alpha) * cluster.mse + alpha * mse)
        return replace(cluster, mse=average, converged=cluster.converged + 1 if average < self.eps else 0)

    def affinity(self, P: Floats) -> Floats:
        return affinity(P, self.beta, features=self.features, scaled=self.scaled)

    def attempt(self, cluster: Cluster, cohort: int, seed: int) -> Attempt:
        K = len(cluster.members)
        rounds = max(1, K // cohort) if self.patience == "sweep" else 1
        n_max = min(self.n_max, K // cohort) if self.groups_by_cohort else self.n_max
        if max(2 * self.min_size, 3) > K or cluster.converged < rounds or n_max < 2:
            return cluster, None, {}
        labels, scores = fedgw_cluster(
            cluster.P,
            self.beta,
            n_max,
            features=self.features,
            score=self.score,
            assign=self.assign,
            scaled=self.scaled,
            min_size=self.min_size,
            below=float(np.nextafter(1.0, 0.0)) if self.strict else 1.0,
            seed=seed,
        )
        tried = replace(cluster, attempts=cluster.attempts + 1, mse=1.0, converged=0)
        return tried, (labels if labels.any() else None), scores
