"""Metrics of clusters, by class imbalance or against true groups.

The Wasserstein adjusted scores ask whether the clients of a cluster are alike in *how* skewed their classes are, not in
which classes they hold: a client is its class frequencies in falling order. Two such clients, as measures that put 1/C on
each frequency, are as far apart in W2 as the sorted vectors are in root mean square (sorting is the optimal transport on a
line), so a score on sorted vectors is that score under the Wasserstein distance.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.metrics import adjusted_rand_score, davies_bouldin_score, rand_score, silhouette_score

from fedgwc.core.types import Floats, Ids
from fedgwc.metrics.inputs import class_counts, cluster_labels

MANY = 5_000  # clients; of more, the silhouette is that of so many
ROUNDING = 1e-12  # frequencies are at most 1; distances below this are the rounding of equal clients
SAME_CENTRE = 1e-8  # scikit-learn's tolerance, below which its Davies-Bouldin score is 0, the best value


def wasserstein_distances(counts: ArrayLike) -> Floats:
    """Return 2-Wasserstein distances between clients' class imbalances.

    Between 0 and 1; 0 for clients that are equally skewed, whichever their classes are.

    Parameters
    ----------
    counts : array-like [K, C], samples per class of each client; each row is divided by its sum

    Returns
    -------
    array [K, K], symmetric, with a zero diagonal

    References
    ----------
    Interaction-Aware Gaussian Weighting for Clustered Federated Learning (ICML 2025), appendix on the Wasserstein
    adjusted score. Its main text has 1/C times the Euclidean distance, which differs by a constant factor.

    Examples
    --------
    >>> wasserstein_distances([[8, 0], [0, 3], [5, 5]])
    array([[0. , 0. , 0.5],
           [0. , 0. , 0.5],
           [0.5, 0.5, 0. ]])
    """
    points = _points(counts)
    points = np.ascontiguousarray(points[:, points.any(0)])  # most ranks are empty where classes are many
    distances: Floats = cdist(points, points)
    return np.where(distances < ROUNDING, 0.0, distances)


def wasserstein_adjusted(score: Callable[[Floats, Ids], float], counts: ArrayLike, labels: ArrayLike) -> float:
    """Compute any clustering score under the Wasserstein distance of imbalances.

    Range and best value are those of `score`. One cluster only: nan; what else `score` cannot do is left to it.

    Parameters
    ----------
    score : function of (points [K, C], labels [K]); Euclidean distances between the points are `wasserstein_distances`
    counts : array-like [K, C], samples per class of each client; each row is divided by its sum
    labels : array-like [K], the cluster of each client

    References
    ----------
    Interaction-Aware Gaussian Weighting for Clustered Federated Learning (ICML 2025), on the Wasserstein adjusted score.

    Examples
    --------
    >>> from sklearn.metrics import calinski_harabasz_score
    >>> round(wasserstein_adjusted(calinski_harabasz_score, [[9, 1], [2, 8], [5, 5], [4, 6]], [0, 0, 1, 1]), 6)
    18.0
    """
    points = _points(counts)
    clusters = cluster_labels(labels, len(points))
    return float(score(points, clusters)) if clusters.max() > 0 else float("nan")


def wasserstein_adjusted_silhouette(counts: ArrayLike, labels: ArrayLike) -> float:
    """Return the silhouette score by class imbalance (WAS).

    How much nearer clients are to their own cluster than to the next one.

    Between -1 and 1, best 1. The answer is nan if there is only one cluster, which has nothing to be compared with. A client
    alone in its cluster counts as 0, so if every client is alone the answer is 0; it is 0, too, if all clients are alike. It
    takes a distance per pair of clients, so of more than 5,000 clients that many are drawn, always the same ones.

    Parameters
    ----------
    counts : array-like [K, C], samples per class of each client; each row is divided by its sum
    labels : array-like [K], the cluster of each client

    References
    ----------
    Rousseeuw (1987), Silhouettes: a graphical aid to the interpretation and validation of cluster analysis. Journal of
    Computational and Applied Mathematics 20. The adjustment: see `wasserstein_adjusted`.

    Examples
    --------
    >>> wasserstein_adjusted_silhouette([[8, 0], [0, 3], [5, 5], [2, 2]], [0, 0, 1, 1])
    1.0
    """
    counts = class_counts(counts)
    clusters = cluster_labels(labels, len(counts))
    if clusters.max() == 0:
        return float("nan")
    if len(counts) > MANY:
        drawn = np.random.default_rng(0).choice(len(counts), MANY, replace=False)
        return wasserstein_adjusted_silhouette(counts[drawn], clusters[drawn])
    distances = wasserstein_distances(counts)
    if clusters.max() == len(clusters) - 1:
        return 0.0  # scikit-learn refuses what Rousseeuw defines: a lone member's silhouette is 0
    return float(silhouette_score(distances, clusters, metric="precomputed"))


def wasserstein_adjusted_davies_bouldin(counts: ArrayLike, labels: ArrayLike) -> float:
    """Return the Davies-Bouldin score by class imbalance (WADB).

    How wide clusters are compared with the distance to the next one.

    0 or more, best 0. The answer is nan where it would say nothing: only one cluster, every client alone, or all clients alike.
    Otherwise it is inf if two clusters have the same centre: they are not separated at all.

    Parameters
    ----------
    counts : array-like [K, C], samples per class of each client; each row is divided by its sum
    labels : array-like [K], the cluster of each client

    References
    ----------
    Davies and Bouldin (1979), A cluster separation measure. IEEE TPAMI 1. The adjustment: see `wasserstein_adjusted`.

    Examples
    --------
    >>> round(wasserstein_adjusted_davies_bouldin([[9, 1], [2, 8], [5, 5], [4, 6]], [0, 0, 1, 1]), 12)
    0.333333333333
    """
    points = _points(counts)
    clusters = cluster_labels(labels, len(points))
    n_clusters = int(clusters.max()) + 1
    if n_clusters in (1, len(points)) or cdist(points, points[:1]).max() < SAME_CENTRE:
        return float("nan")
    centres = np.stack([points[clusters == c].mean(0) for c in range(n_clusters)])
    if cdist(centres, centres)[np.triu_indices(n_clusters, 1)].min() < SAME_CENTRE:
        return float("inf")
    return float(davies_bouldin_score(points, clusters))


def rand_index(truth: ArrayLike, labels: ArrayLike) -> float:
    """Return the share of client pairs treated alike.

    Alike: together in both clusterings, or apart in both.

    Between 0 and 1, best 1. A single client has no pairs; the answer is 1.

    Parameters
    ----------
    truth, labels : array-like [K], two clusterings of the same clients; the names of clusters do not matter

    References
    ----------
    Rand (1971), Objective criteria for the evaluation of clustering methods. JASA 66.

    Examples
    --------
    >>> rand_index(["clean", "clean", "noisy", "noisy"], [0, 0, 1, 2])
    0.8333333333333334
    """
    return _agreement(rand_score, truth, labels)


def adjusted_rand_index(truth: ArrayLike, labels: ArrayLike) -> float:
    """Return the Rand index, adjusted for chance.

    0 is what random clusters of the same sizes reach on average.

    Between -0.5 and 1, best 1. Two clusterings that are the same give 1, also where each is one cluster or all are alone.

    Parameters
    ----------
    truth, labels : array-like [K], two clusterings of the same clients; the names of clusters do not matter

    References
    ----------
    Hubert and Arabie (1985), Comparing partitions. Journal of Classification 2.

    Examples
    --------
    >>> adjusted_rand_index([0, 0, 1, 1], [0, 0, 1, 2])
    0.5714285714285714
    """
    return _agreement(adjusted_rand_score, truth, labels)


def _points(counts: ArrayLike) -> Floats:
    """Return ranked class frequencies [K, C].

    They are scaled so that Euclidean distances between rows are W2.
    """
    ranked = np.sort(class_counts(counts), axis=1)[:, ::-1]
    # Sorted before summed: the order of classes must not change even the last bit.
    points: Floats = ranked / (ranked.sum(1, keepdims=True) * np.sqrt(ranked.shape[1]))
    return points


def _agreement(score: Callable[[Ids, Ids], float], truth: ArrayLike, labels: ArrayLike) -> float:
    first = cluster_labels(truth, name="truth")
    second = cluster_labels(labels, len(first))
    with warnings.catch_warnings():
        # scikit-learn takes many small clusters for a regression target.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        return float(score(first, second))
