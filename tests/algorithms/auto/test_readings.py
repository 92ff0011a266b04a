"""What the public readings of losses say, by hand, and the distances between perception vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from fedgwc.algorithms.auto.readings import first_losses, gaussian_sides, gaussian_spreads, loss_variances
from fedgwc.algorithms.fedgwc.rewards import gaussian_rewards
from fedgwc.algorithms.perception import perception_distances
from fedgwc.core.errors import InputError


def test_sides_by_hand() -> None:
    """Losses 1, 2, 3 lie one deviation below, on and above their mean: the normal distribution function at -1, 0, 1."""
    np.testing.assert_allclose(gaussian_sides([[1.0], [2.0], [3.0]]), [0.158655, 0.5, 0.841345], atol=1e-6)
    assert gaussian_sides([[4.0], [4.0], [4.0]]).tolist() == [0.5, 0.5, 0.5]
    two_steps = gaussian_sides([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]])
    np.testing.assert_allclose(two_steps, [0.5] * 3, atol=1e-12)  # above once, below once


@given(st.lists(st.integers(1, 1000), min_size=3, max_size=8, unique=True))
def test_sides_tell_what_rewards_forget(losses: list[int]) -> None:
    """Mirrored losses have the same rewards and mirrored sides."""
    x = np.array(losses)[:, None] / 100
    mirrored = x.max() + x.min() - x
    np.testing.assert_allclose(gaussian_rewards(x), gaussian_rewards(mirrored), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(gaussian_sides(x) + gaussian_sides(mirrored), 1.0, atol=1e-6)
    assert (np.argsort(gaussian_sides(x)) == np.argsort(x[:, 0])).all()


def test_spreads_by_hand() -> None:
    """Variances 2, 200 and 20,000, twice each: their logarithms lie at -d, 0 and d with a deviation of d sqrt(4 / 5)."""
    up_and_down = np.kron([[1.0], [10.0], [100.0]], [[1.0, -1.0], [-1.0, 1.0]])
    expected = norm.cdf(np.repeat([-1, 0, 1], 2) * np.sqrt(5 / 4))
    np.testing.assert_allclose(gaussian_spreads(up_and_down), expected, atol=1e-9)
    levels = np.arange(6.0)[:, None]
    np.testing.assert_allclose(gaussian_spreads(up_and_down + levels), expected, atol=1e-9)  # levels are another matter
    falling = np.array([9.0, 2.0])
    np.testing.assert_allclose(gaussian_spreads(up_and_down + falling), expected, atol=1e-9)


def test_steps_that_were_not_made_do_not_count() -> None:
    full = gaussian_sides([[1.0], [2.0], [3.0]])
    ragged = gaussian_sides([[1.0, np.nan], [2.0, np.nan], [3.0, 7.0]])  # one client made a second step
    np.testing.assert_allclose(full, ragged)
    assert loss_variances([[1.0, np.nan], [2.0, np.nan], [3.0, 7.0]]) == (1.0, 0.0)
    some = np.array([[1.0, 5.0, np.nan], [2.0, 3.0, 9.0], [3.0, 8.0, 2.0], [2.0, 2.0, 2.0]])
    assert gaussian_spreads(some).shape == (4,)
    assert ((gaussian_spreads(some) > 0) & (gaussian_spreads(some) < 1)).all()


def test_variances_of_clients_from_one_source_are_equal() -> None:
    """F is 1 on average if clients differ by their batches' luck alone, and grows with the square of what sets them apart."""
    rng = np.random.default_rng(0)
    sums = np.zeros((2, 2))
    for _ in range(400):
        batches = rng.standard_normal((10, 7)) + np.linspace(1, 0, 7)  # losses fall from step to step, for all alike
        sums[0] += loss_variances(batches)
        sums[1] += loss_variances(batches + rng.standard_normal((10, 1)))  # between: 1 + 7 steps x 1
    f = sums[:, 0] / sums[:, 1]
    np.testing.assert_allclose(f, [1, 8], rtol=0.08)


def test_first_losses_by_hand() -> None:
    assert first_losses([[4.0, 1.0, 9.0], [2.0, 1.0, 9.0], [3.0, 4.0, 9.0]]) == (3.0, 2.0)
    assert first_losses([[4.0], [2.0], [3.0]]) == (0.0, 0.0)  # one step tells nothing
    assert first_losses([[4.0, 1.0], [2.0, 1.0], [3.0, 4.0], [99.0, np.nan]]) == (3.0, 2.0)  # nor does a client with one
    assert first_losses([[1.0, np.nan], [2.0, np.nan], [3.0, 7.0]]) == (0.0, 0.0)  # a step of fewer than three is left out


def test_losses_near_the_largest_float_are_still_compared() -> None:
    exploded = np.array([[1.0], [2.0], [1.7e308]])
    assert gaussian_rewards(exploded)[:2] == pytest.approx(gaussian_rewards(np.array([[0.0], [0.0], [1.0]]))[:2])
    assert gaussian_sides(exploded)[2] > 0.8
    assert np.isfinite(loss_variances(exploded)).all()
    assert np.isfinite(gaussian_spreads(np.hstack([exploded, exploded / 2]))).all()


@pytest.mark.parametrize("read", [gaussian_sides, gaussian_spreads, loss_variances, first_losses])
def test_impossible_losses(read: Any) -> None:
    for losses, message in (([[1.0], [2.0]], "at least 3 clients"), ([1.0, 2.0, 3.0], "clients, steps"), ([["x"]], "be numbers")):
        with pytest.raises(InputError, match=message):
            read(losses)


def loop(V: np.ndarray, visits: np.ndarray) -> np.ndarray:
    """The definition, pair by pair."""
    K = len(V)
    filled = np.where(visits > 0, V, np.diag(V)[:, None])
    away = np.diag(visits) == 0
    filled[away] = filled[~away].mean(0)
    distances = np.zeros((K, K))
    for k in range(K):
        for j in range(K):
            others = [i for i in range(K) if i not in (k, j)]
            distances[k, j] = ((filled[k, others] - filled[j, others]) ** 2).mean() if others and k != j else 0.0
    return distances


@pytest.mark.parametrize("K", [2, 3, 17])
def test_distances_equal_the_loop(K: int) -> None:
    rng = np.random.default_rng(0)
    V, visits = rng.random((K, K)), rng.poisson(1.0, (K, K))
    np.fill_diagonal(visits, 5)
    np.testing.assert_allclose(perception_distances(V, visits), loop(V, visits), atol=1e-12)


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match="NaN"):
        perception_distances([[0.0, np.nan], [0.0, 0.0]], np.ones((2, 2)))
    cases: tuple[tuple[Any, str], ...] = (
        ([[1, np.nan], [1, 1]], "visits must be counts, finite and >= 0, got NaN"),
        ([[1, -1], [1, 1]], r"visits must be counts, finite and >= 0, got -1\.\.1"),
        (np.ones((3, 3)), r"visits must be of the shape \(2, 2\), .* got \(3, 3\)"),
        ([[1, 1], [1]], "visits must be numbers, in rows of one length"),
    )
    for visits, message in cases:
        with pytest.raises(InputError, match=message):
            perception_distances(np.zeros((2, 2)), visits)
