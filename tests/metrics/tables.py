"""Metrics of clusters, for tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable

from numpy.typing import ArrayLike

from fedgwc.metrics import clustering

# Functions of (counts [K, C], labels [K]): clusters judged by the clients' data
CLUSTERING_METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {
    "wasserstein_adjusted_silhouette": clustering.wasserstein_adjusted_silhouette,
    "wasserstein_adjusted_davies_bouldin": clustering.wasserstein_adjusted_davies_bouldin,
}
# Functions of (truth [K], labels [K]): clusters judged against known groups
AGREEMENT_METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {
    "rand_index": clustering.rand_index,
    "adjusted_rand_index": clustering.adjusted_rand_index,
}
