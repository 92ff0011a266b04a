"""FedGWC's mathematics: numbers by hand, loops as oracles, properties over everything."""

from __future__ import annotations

import numpy as np
import pytest
from fedgwc.algorithms.fedgwc.spectral import embedding
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import ArrayLike, NDArray

from fedgwc.algorithms.auto.readings import first_losses, gaussian_rewards, gaussian_sides, gaussian_spreads, loss_variances
from fedgwc.algorithms.fedgwc import perception
from fedgwc.algorithms.fedgwc.interactions import affinity, fedgw_cluster, update_interactions, update_weights, weight_interval
from fedgwc.core.errors import InputError
from fedgwc.metrics import adjusted_rand_index

LOSSES = arrays(
    np.float64, st.tuples(st.integers(3, 12), st.integers(1, 8)), elements=st.floats(0, 10).map(lambda x: round(x, 3))
)


# Rewards


def test_rewards_by_hand() -> None:
    """Losses 1, 2, 3: mean 2, variance 1, so exp(-1/2) for the outer two."""
    np.testing.assert_allclose(gaussian_rewards([[1.0], [2.0], [3.0]]), [np.exp(-0.5), 1, np.exp(-0.5)])


def test_rewards_average_over_steps() -> None:
    once, twice = gaussian_rewards([[1.0], [2.0], [3.0]]), gaussian_rewards([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    np.testing.assert_allclose(twice, (once + 1) / 2)  # the second step has equal losses: reward 1


def test_weighted_statistics_by_hand() -> None:
    """Sizes 2, 1, 1 of losses 0, 0, 4: mean 1, variance (2*1 + 1*1 + 1*9) / 4 = 3."""
    got = gaussian_rewards([[0.0], [0.0], [4.0]], sizes=[2, 1, 1])
    np.testing.assert_allclose(got, [np.exp(-1 / 6), np.exp(-1 / 6), np.exp(-9 / 6)])


def test_normalised_rewards_sum_to_one() -> None:
    assert gaussian_rewards([[1.0], [2.0], [9.0]], normalise=True).sum() == pytest.approx(1)


def test_loss_sampling_estimates_the_same_statistics() -> None:
    x = np.random.default_rng(0).normal(2, 0.5, (10, 4))
    plain = gaussian_rewards(x, sizes=np.ones(10))
    sampled = gaussian_rewards(x, sizes=np.ones(10), samples=100_000, rng=np.random.default_rng(1))
    np.testing.assert_allclose(sampled, plain, atol=0.02)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [1e-8, 2.5, 1e6])
def test_losses_equal_up_to_rounding_give_reward_one(value: float, dtype: type[np.floating]) -> None:
    x: NDArray[np.floating] = np.full((5, 3), value, dtype)
    assert gaussian_rewards(x).tolist() == [1.0] * 5
    x[0] = np.nextafter(x[0], dtype(np.inf))
    assert gaussian_rewards(x).tolist() == [1.0] * 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_losses_of_zero_give_reward_one(dtype: type[np.floating]) -> None:
    assert gaussian_rewards(np.zeros((5, 3), dtype)).tolist() == [1.0] * 5


def test_steps_not_made_are_left_out() -> None:
    full = np.array([[1.0, 1.0], [2.0, 4.0], [3.0, 5.0], [4.0, 9.0]])
    ragged = full.copy()
    ragged[0, 1] = np.nan
    got = gaussian_rewards(ragged)
    first = gaussian_rewards(full[:, :1])
    second = gaussian_rewards(full[1:, 1:])
    np.testing.assert_allclose(got, [first[0], *(first[1:] + second) / 2])


def test_a_step_of_two_clients_carries_no_information() -> None:
    x = np.array([[1.0, 7.0], [2.0, np.nan], [4.0, 100.0]])
    np.testing.assert_allclose(gaussian_rewards(x), gaussian_rewards(x[:, :1]))


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ([[1.0], [2.0]], "at least 3 clients, got 2"),
        ([1.0, 2.0, 3.0], "clients, steps"),
        (np.empty((3, 0)), "at least one step"),
        ([[1.0], [2.0], [np.inf]], "must be finite"),
        ([[1.0], [2.0], [np.nan]], "at least one loss"),
        ([[1.0], [2.0, 3.0], [4.0]], "losses must be numbers, in rows of one length"),
        ([["1"], ["x"], ["2"]], "losses must be numbers, got <U1"),
        ([[1.0], [2.0], [10**400]], "losses must be numbers.* too large"),
    ],
)
def test_impossible_losses(losses: ArrayLike, message: str) -> None:
    for read in (gaussian_rewards, gaussian_sides, gaussian_spreads, loss_variances, first_losses):
        with pytest.raises(InputError, match=message):
            read(losses)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": -1}, "samples must be a whole number >= 0, got -1"),
        ({"samples": 0.5}, "samples must be a whole number >= 0, got 0.5"),
        ({"samples": "x"}, "samples must be numbers, got <U1"),
        ({"sizes": [5e-324] * 3}, "sizes must be 3 positive sample counts"),
        ({"sizes": [1e308] * 3}, "sizes must be 3 positive sample counts"),
        ({"sizes": [[1], [1, 2], [3]]}, "sizes must be numbers, in rows of one length"),
    ],
    ids=str,
)
def test_impossible_ways_to_reward(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gaussian_rewards([[1.0], [2.0], [3.0]], **change)  # type: ignore[arg-type]


@given(LOSSES)
@settings(max_examples=200, deadline=None)
def test_rewards_lie_in_zero_one(x: np.ndarray) -> None:
    reward = gaussian_rewards(x)
    assert ((reward > 0) & (reward <= 1)).all()


@given(LOSSES, st.floats(0.1, 10), st.floats(-10, 10))
@settings(max_examples=200, deadline=None)
def test_rewards_do_not_see_shift_and_scale(x: np.ndarray, scale: float, shift: float) -> None:
    np.testing.assert_allclose(gaussian_rewards(scale * x + shift), gaussian_rewards(x), atol=1e-6)


def test_one_far_outlier_keeps_a_positive_reward() -> None:
    x = np.zeros((5000, 1))
    x[0] = 1.0
    assert gaussian_rewards(x)[0] > 0


# Weights and interactions


def test_update_touches_only_the_cohort() -> None:
    P = np.zeros((4, 4))
    new = update_interactions(P, [1, 3], [1.0, 0.5], 0.1)
    assert not P.any()
    np.testing.assert_allclose(new[np.ix_([1, 3], [1, 3])], [[0.1, 0.1], [0.05, 0.05]])
    assert np.count_nonzero(new) == 4


def test_out_writes_in_place_and_keeps_the_dtype() -> None:
    P = np.zeros((4, 4), np.float32)
    assert update_interactions(P, [0, 2], [1.0, 1.0], 0.5, out=P) is P
    assert P.dtype == np.float32
    assert P.sum() == 2.0
    other = np.ones((4, 4))
    assert update_interactions(P, [0], [0.0], 1.0, out=other) is other
    assert other[2, 2] == 0.5


def test_alpha_of_one_over_n_is_the_plain_mean() -> None:
    """Pair (0, 1) sees rewards 0.2, 0.4, 0.9 and ends at their mean."""
    P, seen = np.zeros((2, 2)), np.zeros((2, 2))
    for omega in (0.2, 0.4, 0.9):
        seen += 1
        P = update_interactions(P, [0, 1], [omega, 1.0], 1 / seen)
    np.testing.assert_allclose(P[0], 0.5)


@given(st.lists(st.tuples(st.sets(st.integers(0, 5), min_size=1), st.floats(0, 1), st.floats(0.01, 1)), min_size=1, max_size=30))
@settings(max_examples=100, deadline=None)
def test_interactions_stay_in_zero_one(rounds: list[tuple[set[int], float, float]]) -> None:
    P = np.zeros((6, 6))
    for cohort, omega, alpha in rounds:
        P = update_interactions(P, sorted(cohort), [omega] * len(cohort), alpha)
        assert ((P >= 0) & (P <= 1)).all()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((np.zeros((2, 3)), [0], [1.0], 0.1), "square"),
        ((np.zeros((2, 2)), [2], [1.0], 0.1), "client numbers in 0..1"),
        ((np.zeros((2, 2)), [-1], [1.0], 0.1), "client numbers"),
        ((np.zeros((2, 2)), [0.5], [1.0], 0.1), "client numbers"),
        ((np.zeros((2, 2)), [0, 0], [1.0, 1.0], 0.1), "once"),
        ((np.zeros((2, 2)), [0], [1.5], 0.1), r"rewards must be in \[0, 1\]"),
        ((np.zeros((2, 2)), [0], [np.nan], 0.1), "rewards must be"),
        ((np.zeros((2, 2)), [0, 1], [1.0], 0.1), "one length"),
        ((np.zeros((2, 2)), [0], [1.0], 0.0), "alpha must be"),
        ((np.zeros((2, 2)), [0], [1.0], [0.1, 0.2]), "alpha must be"),
        ((np.zeros((2, 2)), [0], [1.0], "x"), "alpha must be numbers"),
        ((np.zeros((2, 2)), ["a"], [1.0], 0.1), "cohort must be numbers, got <U1"),
        ((np.zeros((2, 2)), [0], ["x"], 0.1), "rewards must be numbers"),
        (([[0.0], [0.0, 0.0]], [0], [1.0], 0.1), "P must be numbers, in rows of one length"),
        ((np.diag([0.0, np.nan]), [0], [1.0], 0.1), r"P must hold means of values in \[0, 1\], got NaN"),
        ((np.diag([0.0, 7.0]), [0], [1.0], 0.1), r"P must hold means of values in \[0, 1\], got 0.0..7.0"),
        ((np.zeros((2, 2)), [0], [1.0], 0.1, np.zeros((2, 2), int)), "out must be a floating-point array"),
        ((np.zeros((2, 2)), [0], [1.0], 0.1, np.zeros((3, 3))), r"out must be .* of the shape \(2, 2\)"),
    ],
)
def test_impossible_updates(args: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        update_interactions(*args)  # type: ignore[arg-type]


def test_in_place_only_what_is_moved_is_looked_at() -> None:
    P = np.diag([0.0, 0.0, np.nan])
    assert update_interactions(P, [0, 1], [1.0, 1.0], 0.5, out=P)[0, 0] == 0.5
    with pytest.raises(InputError, match="got NaN"):
        update_interactions(P, [0, 2], [1.0, 1.0], 0.5, out=P)


def test_weights_are_means_of_rewards() -> None:
    for gamma in ([0.5, np.nan], [7.0, 0.0]):
        with pytest.raises(InputError, match="gamma must hold means"):
            update_weights(gamma, [0], [1.0], 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0}, r"alpha must be in \(0, 1\], got 0"),
        ({"alpha": 5}, "alpha must be"),
        ({"alpha": "x"}, "alpha must be numbers"),
        ({"visits": [-5, 3]}, r"visits must be counts, finite and >= 0, got -5.0\.\.3.0"),
        ({"visits": [np.nan, 3]}, "visits must be counts"),
        ({"visits": [3, 3, 3]}, "of one length"),
        ({"gamma": [0.5, np.nan]}, "gamma must hold means"),
        ({"gamma2": [0.5, 9.0]}, "gamma2 must hold means"),
        ({"z": np.nan}, "z must be positive and finite"),
    ],
    ids=str,
)
def test_impossible_intervals(change: dict[str, object], message: str) -> None:
    good = {"gamma": [0.5, 0.5], "gamma2": [0.3, 0.3], "visits": [3, 3]}
    with pytest.raises(InputError, match=message):
        weight_interval(**{**good, **change})  # type: ignore[arg-type]


def test_a_single_reward_has_no_interval() -> None:
    low, high = weight_interval([0.5], [0.25], [9], alpha=1)
    assert (low.tolist(), high.tolist()) == ([0.0], [1.0])


# Affinity


def affinity_loop(P: np.ndarray, beta: float) -> np.ndarray:
    """Eq. 4 as it is written."""
    K = len(P)
    W = np.ones((K, K))
    for k in range(K):
        for j in range(K):
            if k != j:
                keep = [i for i in range(K) if i not in (k, j)]
                W[k, j] = np.exp(-beta * ((P[k, keep] - P[j, keep]) ** 2).sum())
    return W


def random_matrix(K: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((K, K))


@pytest.mark.parametrize("K", [2, 3, 4, 17])
def test_affinity_equals_the_loop(K: int) -> None:
    P = random_matrix(K)
    np.testing.assert_allclose(affinity(P, 0.7), affinity_loop(P, 0.7), atol=1e-12)
    np.testing.assert_allclose(affinity(P, 0.7, features="columns"), affinity_loop(P.T, 0.7), atol=1e-12)
    scaled = (P - P.min()) / np.ptp(P)
    np.testing.assert_allclose(affinity(P, 0.7, scaled=True), affinity_loop(scaled, 0.7), atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"features": "columns"}, {"scaled": True}], ids=["rows", "columns", "scaled"])
def test_a_large_affinity_is_the_same_in_blocks_of_float32(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    P = random_matrix(31)
    whole = affinity(P, 0.3, **options)  # type: ignore[arg-type]
    monkeypatch.setattr(perception, "LARGE", 8)
    blocks = affinity(P, 0.3, **options)  # type: ignore[arg-type]
    assert [P.dtype.name for P in (whole, blocks)] == ["float64", "float32"]
    np.testing.assert_allclose(blocks, whole, rtol=1e-5)
    np.testing.assert_array_equal(blocks, blocks.T)


@given(arrays(np.float64, st.integers(2, 10).map(lambda k: (k, k)), elements=st.floats(0, 1)), st.floats(1e-3, 100))
@settings(max_examples=100, deadline=None)
def test_affinity_is_symmetric_in_zero_one_with_diagonal_one(P: np.ndarray, beta: float) -> None:
    W = affinity(P, beta)
    np.testing.assert_array_equal(W, W.T)
    assert ((W >= 0) & (W <= 1)).all()
    assert (W.diagonal() == 1).all()


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_impossible_beta(bad: float) -> None:
    with pytest.raises(InputError, match="beta must be positive"):
        affinity(np.zeros((3, 3)), bad)


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
    if "features" in change:
        with pytest.raises(InputError, match=message):
            affinity(random_matrix(4), 1.0, **change)  # type: ignore[arg-type]


def test_affinity_of_nonsense() -> None:
    with pytest.raises(InputError, match="NaN"):
        affinity([[0.0, np.nan], [0.0, 0.0]], 1.0)
    with pytest.raises(InputError, match="square"):
        affinity([0.0, 1.0], 1.0)


# Clusters


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
