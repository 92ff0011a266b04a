"""Metrics of models and of clusters."""

from __future__ import annotations

from fedgwc.metrics.classification import accuracy, balanced_accuracy, weighted_accuracy
from fedgwc.metrics.clustering import (
    adjusted_rand_index,
    rand_index,
    wasserstein_adjusted,
    wasserstein_adjusted_davies_bouldin,
    wasserstein_adjusted_silhouette,
    wasserstein_distances,
)
from fedgwc.metrics.table import METRICS, Evaluated, evaluate

__all__ = [
    "METRICS",
    "Evaluated",
    "accuracy",
    "adjusted_rand_index",
    "balanced_accuracy",
    "evaluate",
    "rand_index",
    "wasserstein_adjusted",
    "wasserstein_adjusted_davies_bouldin",
    "wasserstein_adjusted_silhouette",
    "wasserstein_distances",
    "weighted_accuracy",
]
