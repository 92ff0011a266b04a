"""k-means and Davies-Bouldin of few points, beside scikit-learn's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import davies_bouldin_score

from fedgwc.algorithms.kmeans import few_means
from fedgwc.algorithms.spectral import FEW, davies_bouldin
from fedgwc.core.types import Floats, Ids


def squares_within(points: Floats, labels: Ids) -> float:
    return float(sum(((points[labels == y] - points[labels == y].mean(0)) ** 2).sum() for y in np.unique(labels)))


def clouds(n: int) -> Iterator[tuple[Floats, int]]:
    """Points without groups, and around k places."""
    for seed in range(n):
        rng = np.random.default_rng(seed)
        K = int(rng.integers(4, 40))
        k = int(rng.integers(2, min(6, K)))
        places = 3 * (seed % 2) * rng.standard_normal((k, k))
        yield rng.standard_normal((K, k)) + places[rng.integers(k, size=K)], k


def test_groups_far_apart_are_found() -> None:
    points = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], [5, 3, 2], axis=0) + 0.1 * np.random.default_rng(0).random((10, 2))
    labels = few_means(points, 3, seed=1)
    assert [len(set(labels[part])) for part in (slice(0, 5), slice(5, 8), slice(8, 10))] == [1, 1, 1]
    assert len(set(labels)) == 3


def test_it_is_as_good_as_the_general_one() -> None:
    ours, theirs = [], []
    for points, k in clouds(150):
        ours.append(squares_within(points, few_means(points, k, seed=0)))
        theirs.append(squares_within(points, KMeans(k, n_init=10, random_state=0).fit_predict(points)))
    ratio = np.array(ours) / theirs
    assert ratio.mean() < 1.002
    assert (ratio > 1 + 1e-9).mean() < 0.15


def test_the_seed_decides_and_points_that_are_equal_do_no_harm() -> None:
    points, k = next(clouds(1))
    assert few_means(points, k, 3).tolist() == few_means(points, k, 3).tolist()
    same = few_means(np.ones((6, 2)), 1, seed=0)
    assert same.tolist() == [0] * 6
    assert set(few_means(np.repeat([[0.0], [1.0]], 4, axis=0), 2, seed=0)[[0, 4]]) == {0, 1}


@pytest.mark.parametrize("size", [FEW, FEW + 1])
def test_davies_bouldin_is_the_same_on_both_sides_of_few(size: int) -> None:
    rng = np.random.default_rng(size)
    points, labels = rng.standard_normal((size, 3)), np.arange(size) % 4
    assert davies_bouldin(points, labels) == pytest.approx(davies_bouldin_score(points, labels), rel=1e-12)
    assert davies_bouldin(points, np.zeros(size, np.int64)) == np.inf
    assert davies_bouldin(np.eye(2)[labels % 2], labels % 2) == 0.0
