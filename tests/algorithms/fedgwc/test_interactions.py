"""Weights, interactions and affinities: numbers by hand, the loop as an oracle, properties over everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedgwc.algorithms import perception
from fedgwc.algorithms.fedgwc.interactions import affinity, update_interactions, update_weights
from fedgwc.core.errors import InputError


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


def test_affinity_of_nonsense() -> None:
    with pytest.raises(InputError, match="NaN"):
        affinity([[0.0, np.nan], [0.0, 0.0]], 1.0)
    with pytest.raises(InputError, match="square"):
        affinity([0.0, 1.0], 1.0)
    with pytest.raises(InputError, match="did you mean rows"):
        affinity(np.zeros((3, 3)), 1.0, features="row")  # type: ignore[arg-type]
