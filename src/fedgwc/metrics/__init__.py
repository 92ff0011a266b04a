"""How good the models are, and how good the clusters are."""

from __future__ import annotations

from collections.abc import Callable

from numpy.typing import ArrayLike

from fedgwc.metrics.classification import accuracy, balanced_accuracy, weighted_accuracy
from fedgwc.metrics.clustering import (
    adjusted_rand_index,
    rand_index,
    wasserstein_adjusted,
    wasserstein_adjusted_davies_bouldin,
    wasserstein_adjusted_silhouette,
    wasserstein_distances,
)

# Functions of (counts [K, C], labels [K]): clusters judged by the clients' data
CLUSTERING_METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {
    "wasserstein_adjusted_silhouette": wasserstein_adjusted_silhouette,
    "wasserstein_adjusted_davies_bouldin": wasserstein_adjusted_davies_bouldin,
}
# Functions of (truth [K], labels [K]): clusters judged against known groups
AGREEMENT_METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {
    "rand_index": rand_index,
    "adjusted_rand_index": adjusted_rand_index,
}

__all__ = [
    "AGREEMENT_METRICS",
    "CLUSTERING_METRICS",
    "accuracy",
    "adjusted_rand_index",
    "balanced_accuracy",
    "rand_index",
    "wasserstein_adjusted",
    "wasserstein_adjusted_davies_bouldin",
    "wasserstein_adjusted_silhouette",
    "wasserstein_distances",
    "weighted_accuracy",
]
