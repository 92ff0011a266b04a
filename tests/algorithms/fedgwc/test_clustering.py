"""FedGW_Cluster: planted groups are found in any order, what is alike is never split, and nothing else does harm."""

from __future__ import annotations

import numpy as np
import pytest

from fedgwc.algorithms import perception
from fedgwc.algorithms.fedgwc.clustering import fedgw_cluster
from fedgwc.algorithms.fedgwc.interactions import affinity
from fedgwc.algorithms.spectral import embedding
from fedgwc.core.errors import InputError
from fedgwc.metrics import adjusted_rand_index


def random_matrix(K: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((K, K))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": "row"}, "features must be one of 'rows', 'columns'; got 'row' .did you mean rows"),
        ({"score": "afinity"}, "score must be one of 'affinity', 'embedding'; got"),
        ({"assign": "kmean"}, "assign must be one of 'kmeans', 'cluster_qr'; got"),
        ({"beta": "x"}, "beta must be numbers, got <U1"),
        ({"beta": 10**400}, "beta must be numbers.* too large"),
        ({"seed": -1}, r"seed must be a whole number in 0\.\.4294967295, got -1"),
        ({"n_max": 2.5}, "n_max must be a whole number >= 2, got 2.5"),
        ({"min_size": 0}, "min_size must be a whole number >= 1, got 0"),
        ({"below": np.nan}, "below must be a number, got nan"),
        ({"P": [[0.0], [0.0, 1.0]]}, "P must be numbers, in rows of one length"),
    ],
    ids=str,
)
def test_impossible_clusterings(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fedgw_cluster(**{"P": random_matrix(4), "beta": 1.0, **change})  # type: ignore[arg-type]


def two_groups(sizes: tuple[int, ...] = (12, 8), noise: float = 0.02, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Clients of one group are perceived alike: P_kj depends on the two groups, plus noise."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    level = 0.2 + 0.6 * np.eye(len(sizes))
    P = level[truth][:, truth] + noise * rng.standard_normal((len(truth), len(truth)))
    return np.clip(P, 0, 1), truth


VARIANTS = [
    {"score": s, "assign": a, "features": f}
    for s in ("affinity", "embedding")
    for a in ("kmeans", "cluster_qr")
    for f in ("rows", "columns")
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(v.values()))
@pytest.mark.parametrize("sizes", [(12, 8), (30, 5), (10, 10, 10), (9, 8, 7, 6)])
def test_well_separated_groups_are_found(variant: dict[str, str], sizes: tuple[int, ...]) -> None:
    P, truth = two_groups(sizes)
    labels, scores = fedgw_cluster(P, 1.0, **variant)  # type: ignore[arg-type]
    assert adjusted_rand_index(truth, labels) == 1.0
    assert set(scores) == {2, 3, 4, 5}
    assert min(scores, key=scores.__getitem__) == len(sizes)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(v.values()))
def test_labels_do_not_depend_on_the_order_of_clients(variant: dict[str, str]) -> None:
    P, _ = two_groups((10, 7, 5))
    labels, _ = fedgw_cluster(P, 1.0, **variant)  # type: ignore[arg-type]
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(P))
        shuffled, _ = fedgw_cluster(P[np.ix_(order, order)], 1.0, **variant)  # type: ignore[arg-type]
        assert adjusted_rand_index(labels[order], shuffled) == 1.0


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(v.values()))
@pytest.mark.parametrize(
    ("P", "beta"),
    [(np.zeros((20, 20)), 1.0), (np.full((20, 20), 0.4), 1.0), (random_matrix(20), 1e-12), (np.full((20, 20), 0.4), 1e-12)],
    ids=["P=0", "constant", "beta=1e-12", "both"],
)
def test_clients_that_are_alike_are_never_split(variant: dict[str, str], P: np.ndarray, beta: float) -> None:
    labels, scores = fedgw_cluster(P, beta, **variant)  # type: ignore[arg-type]
    assert not labels.any()
    assert scores == {}


def test_no_split_above_the_threshold() -> None:
    P, _ = two_groups()
    _, scores = fedgw_cluster(P, 1.0)
    labels, _ = fedgw_cluster(P, 1.0, below=min(scores.values()) * 0.999)
    assert not labels.any()
    assert fedgw_cluster(P, 1.0, below=min(scores.values()))[0].any()


def test_groups_below_the_smallest_size_are_not_made() -> None:
    P, truth = two_groups((20, 3))
    assert fedgw_cluster(P, 1.0, n_max=2, min_size=3)[0].tolist() == truth.tolist()
    assert not fedgw_cluster(P, 1.0, n_max=2, min_size=4)[0].any()


@pytest.mark.parametrize("K", [1, 2])
def test_too_few_clients_to_split(K: int) -> None:
    labels, scores = fedgw_cluster(random_matrix(K), 1.0)
    assert labels.tolist() == [0] * K
    assert scores == {}


def test_disconnected_and_isolated_clients_do_no_harm() -> None:
    """A huge beta cuts every edge between groups, or all edges."""
    P, truth = two_groups((6, 5), noise=0.0)
    labels, _ = fedgw_cluster(P, 1e4)
    assert adjusted_rand_index(truth, labels) == 1.0
    labels, scores = fedgw_cluster(random_matrix(11), 1e12)
    assert np.isfinite(list(scores.values())).all() or not labels.any()


@pytest.mark.parametrize("large", [1000, 100], ids=["float64", "float32"])
def test_truncated_and_dense_eigenvectors_agree(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perception, "LARGE", large)
    P, truth = two_groups((300, 150, 60), noise=0.05)
    labels, _ = fedgw_cluster(P, 0.5, score="embedding", assign="cluster_qr")
    assert adjusted_rand_index(truth, labels) == 1.0


def test_an_embedding_leaves_the_affinity_as_it_was() -> None:
    W = affinity(random_matrix(9), 0.5)
    before = W.copy()
    embedding(W, 2)
    np.testing.assert_array_equal(W, before)
