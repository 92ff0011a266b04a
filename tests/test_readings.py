"""What losses say: sides, spreads, variances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from fedgwc.algorithms.auto.readings import (
    Readings,
    first_losses,
    gaussian_rewards,
    gaussian_sides,
    gaussian_spreads,
    loss_variances,
)


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


@pytest.mark.parametrize(
    "losses",
    [[[1.0], [2.0], [3.0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[0.0, 0.0]] * 3],
    ids=["one step", "steps that differ alike", "all the same"],
)
def test_where_nobody_is_restless_all_are_as_usual(losses: list[list[float]]) -> None:
    assert gaussian_spreads(losses).tolist() == [0.5, 0.5, 0.5]


@given(st.integers(0, 1000), st.floats(1e-3, 1e3))
def test_spreads_do_not_depend_on_the_unit(seed: int, scale: float) -> None:
    x = np.random.default_rng(seed).random((6, 4))
    np.testing.assert_allclose(gaussian_spreads(x * scale), gaussian_spreads(x), atol=1e-6)


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


UP, DOWN, LEVEL = [4.0, 1.0], [1.0, 4.0], [1.0, 1.0]  # of the first step and the second


@pytest.mark.parametrize(
    ("losses", "adrift"),
    [
        ([UP, UP, LEVEL, LEVEL], True),
        ([UP, LEVEL, LEVEL, LEVEL], False),
        ([UP, UP, UP, DOWN], True),  # 3 - 1 are half of four
        ([UP, UP, DOWN, LEVEL], False),  # 2 - 1 are not
        ([UP, UP, DOWN, DOWN], False),
        ([UP, UP, LEVEL, [0.0, 0.0]], True),  # who loses nothing loses neither more nor less
        ([UP, UP, LEVEL, [1.0, np.nan]], True),  # 2 of the three who made both steps
        ([UP, DOWN, LEVEL, [1.0, np.nan]], False),
        ([[4.0], [4.0], [4.0]], False),
    ],
)
def test_drift_by_hand(losses: list[list[float]], adrift: bool) -> None:
    """Half of the clients must lose twice as much in the first step; who loses half as much counts against them."""
    assert Readings(losses).drift(2.0) == adrift


def test_small_losses_that_differ_from_batch_to_batch_are_no_drift() -> None:
    """Either step is three times the other as often as not: half of a cohort of three is two, and not against the third."""
    rng = np.random.default_rng(0)
    steps = rng.permuted(np.tile([1.0, 3.0], (2000, 3, 1)), axis=-1)
    assert Readings(steps).drift(2.0).mean() == pytest.approx(1 / 8, abs=0.03)  # all three at once: 3 - 0


def test_losses_near_the_largest_float_are_still_compared() -> None:
    exploded = np.array([[1.0], [2.0], [1.7e308]])
    assert gaussian_rewards(exploded)[:2] == pytest.approx(gaussian_rewards(np.array([[0.0], [0.0], [1.0]]))[:2])
    assert gaussian_sides(exploded)[2] > 0.8
    assert np.isfinite(loss_variances(exploded)).all()
    assert np.isfinite(gaussian_spreads(np.hstack([exploded, exploded / 2]))).all()


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(3, 11), st.integers(1, 8), st.booleans(), st.booleans())
def test_cohorts_read_together_say_what_each_says_alone(
    seed: int, n_cohorts: int, n: int, n_steps: int, whole: bool, weighted: bool
) -> None:
    rng = np.random.default_rng(seed)
    losses = rng.normal(2, 0.5, (n_cohorts, n, n_steps)).astype(np.float32)
    if not whole:  # a client makes at least the first step; some clients' losses never change
        losses[np.arange(n_steps) >= rng.integers(1, n_steps + 1, (n_cohorts, n, 1))] = np.nan
        losses[rng.random((n_cohorts, n)) < 0.2] = 1.0
    sizes = rng.integers(1, 50, (n_cohorts, n)) if weighted else None
    together = said(Readings(losses, sizes))
    for i in range(n_cohorts):
        alone = said(Readings(losses[i], None if sizes is None else sizes[i]))
        for reading, values in together.items():
            np.testing.assert_array_equal(values[i], alone[reading], err_msg=reading)


def said(r: Readings) -> dict[str, np.ndarray]:
    whole = np.stack([*r.variances(), *r.first_losses()], -1)
    return {"rewards": r.rewards(), "shares": r.rewards(True), "sides": r.sides(), "spreads": r.spreads(), "whole": whole}
