"""k-means of few points from many starts at once.

FedGWC as the paper has it asks again in every round whether a cluster of a handful of clients falls apart. scikit-learn's
k-means is made for many points: for ten of them it spends its time checking arguments. Here all starts are one array.
"""

from __future__ import annotations

import numpy as np

from fedgwc.core.types import Floats, Ids

STARTS = 16
MOST_STEPS = 100


def few_means(points: Floats, k: int, seed: int) -> Ids:
    """Cluster points [K, d] by the best of several runs of Lloyd's algorithm.

    Returns labels [K].

    >>> few_means(np.array([[0.0], [0.1], [5.0], [5.1]]), 2, seed=0).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    True
    """
    means = _spread(points, k, np.random.default_rng(seed))  # [S, k, d]
    labels = np.zeros((len(means), len(points)), np.int64)
    for _ in range(MOST_STEPS):
        new = _squares(points, means).argmin(2)
        if np.array_equal(new, labels):
            break
        labels = new
        member = (labels[:, :, None] == np.arange(k)).astype(points.dtype)  # [S, K, k]
        size = member.sum(1)[:, :, None]
        means = np.where(size > 0, np.einsum("snk,nd->skd", member, points) / np.maximum(size, 1), means)
    best = _squares(points, means).min(2).sum(1).argmin()
    return np.asarray(labels[best])


def _spread(points: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Draw starting means [S, k, d] by k-means++.

    Each is a point drawn by its squared distance from the ones before.
    """
    chosen = rng.integers(len(points), size=(STARTS, 1))
    for _ in range(1, k):
        far = _squares(points, points[chosen]).min(2).cumsum(1)  # [S, K]
        drawn = (far < rng.random((STARTS, 1)) * far[:, -1:]).sum(1, keepdims=True)
        chosen = np.concatenate([chosen, np.minimum(drawn, len(points) - 1)], 1)
    return np.asarray(points[chosen])


def _squares(points: Floats, means: Floats) -> Floats:
    """Return squared distances [S, K, k] of points from means."""
    return np.asarray(((points[None, :, None] - means[:, None]) ** 2).sum(3))
