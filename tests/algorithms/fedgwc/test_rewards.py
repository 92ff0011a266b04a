"""Rewards: numbers by hand, and what holds for any losses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import ArrayLike, NDArray

from fedgwc.algorithms.fedgwc.rewards import gaussian_rewards, rewards_around
from fedgwc.core.errors import InputError

LOSSES = arrays(
    np.float64, st.tuples(st.integers(3, 12), st.integers(1, 8)), elements=st.floats(0, 10).map(lambda x: round(x, 3))
)


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
    with pytest.raises(InputError, match=message):
        gaussian_rewards(losses)


@pytest.mark.parametrize(
    ("change", "message"),
    [
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


def test_rewards_around_given_statistics() -> None:
    """One deviation off gives exp(-1/2); a variance of 0 gives 1; a step that was not made does not count."""
    losses = np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 7.0]])
    got = rewards_around(losses, np.array([2.0, 0.0]), np.array([1.0, 0.0]))
    half = np.exp(-0.5)
    np.testing.assert_allclose(got, [(half + 1) / 2, 1.0, (half + 1) / 2])
