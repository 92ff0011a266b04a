"""FedGW_Cluster (Algorithm 1): spectral clustering of the affinities; Davies-Bouldin chooses the number of groups.

One set of eigenvectors serves every number of groups. K clients in a cluster.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgwc.algorithms.fedgwc.interactions import Features, affinity
from fedgwc.algorithms.spectral import Assign, assign_labels, davies_bouldin, embedding
from fedgwc.core.arguments import integer, number
from fedgwc.core.settings import convert
from fedgwc.core.types import Ids

Score = Literal["affinity", "embedding"]
FLAT = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-5}  # affinities that differ by less hold no structure, only rounding


def fedgw_cluster(
    P: ArrayLike,
    beta: float,
    n_max: int = 5,
    *,
    features: Features = "rows",
    score: Score = "affinity",
    assign: Assign = "kmeans",
    scaled: bool = False,
    min_size: int = 1,
    below: float = 1.0,
    seed: int = 0,
) -> tuple[Ids, dict[int, float]]:
    """Divide K clients into the groups with the best Davies-Bouldin score (Algorithm 1).

    Tries n = 2..n_max groups; P [K, K] -> (labels [K], {n: Davies-Bouldin}); all labels 0 means no split. A split needs a
    score of at most `below` and no group smaller than `min_size`. `score` says what Davies-Bouldin sees: rows of W
    ("affinity", the paper) or of the spectral embedding ("embedding", the release); `assign` how the embedding becomes
    labels. Clients whose affinities are equal up to rounding are never split.
    """
    n_max, min_size, seed = integer(n_max, "n_max", 2), integer(min_size, "min_size", 1), integer(seed, "seed", 0, 2**32 - 1)
    number(below, "below", "a number", lambda x: x == x)
    convert(score, Score, "score")
    convert(assign, Assign, "assign")
    W = affinity(P, beta, features=features, scaled=scaled)
    none = np.zeros(len(W), np.int64)
    n_max = min(n_max, len(W) - 1)
    if n_max < 2 or _is_flat(W):
        return none, {}
    U = embedding(W, n_max)
    labels = {n: assign_labels(U[:, :n], assign, seed) for n in range(2, n_max + 1)}
    scores = {n: davies_bouldin(W if score == "affinity" else U[:, :n], y) for n, y in labels.items()}
    good = [n for n, y in labels.items() if y.any() and scores[n] <= below and np.bincount(y).min() >= min_size]
    return labels[min(good, key=lambda n: scores[n])] if good else none, scores


def _is_flat(W: NDArray[Any]) -> bool:
    K = len(W)
    off = W.reshape(-1)[1:].reshape(K - 1, K + 1)[:, :-1]  # all but the diagonal, without a copy
    return bool(np.ptp(off) <= FLAT[W.dtype])
