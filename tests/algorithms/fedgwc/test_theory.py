"""The paper's theorems, tested on Eq. 2 and Eq. 3 as pure functions. Numbers are the paper's appendix A and B.

Rounds of the algorithm compute many clusters at once instead of calling these functions; test_algorithm.py
shows that they give exactly the same P and weights.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgwc.algorithms.fedgwc.interactions import update_interactions, update_weights
from fedgwc.core.sampling import cohort_size
from fedgwc.core.types import Floats
from fedgwc.metrics.intervals import weight_interval

S = 8  # local steps


def rewards(n_clients: int, rng: np.random.Generator) -> np.ndarray:
    """Omega: the mean over S independent rewards R, here Beta(2, 2) with mu = 0.5 and sigma^2 = 0.05."""
    omega: Floats = rng.beta(2, 2, (n_clients, S)).mean(1)
    return omega


MU, SIGMA2 = 0.5, 0.05


@pytest.mark.parametrize(("power", "near"), [(1.0, 0.008), (0.75, 0.015)], ids=["1/t", "t^-0.75"])
def test_theorem_1_robbins_monro_weights_converge_to_the_mean_reward(power: float, near: float) -> None:
    """Step sizes in l2 but not in l1: every path ends at mu."""
    rng, n = np.random.default_rng(0), 300
    gamma = np.zeros(n)
    everybody = np.arange(n)
    errors = {}
    for t in range(1, 4001):
        gamma = update_weights(gamma, everybody, rewards(n, rng), t**-power)
        if t in (40, 400, 4000):
            errors[t] = float(((gamma - MU) ** 2).mean() ** 0.5)
    assert errors[4000] < errors[400] < errors[40]  # in L2
    assert np.abs(gamma - MU).max() < near  # and every single path


def test_theorem_1_needs_its_condition() -> None:
    """Steps that shrink too fast (in l1) stop short of mu: the test above can fail."""
    rng = np.random.default_rng(0)
    gamma = np.zeros(300)
    for t in range(1, 1000):
        gamma = update_weights(gamma, np.arange(300), rewards(300, rng), 0.5 * t**-2.0)
    assert np.abs(gamma.mean() - MU) > 0.1


def constant_alpha(alpha: float, n: int, rounds: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    gamma = np.zeros(n)
    for _ in range(rounds):
        gamma = update_weights(gamma, np.arange(n), rewards(n, rng), alpha)
    return gamma


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.5])
def test_theorem_2_constant_steps_are_unbiased_in_the_limit(alpha: float) -> None:
    n = 4000
    gamma = constant_alpha(alpha, n, 200)
    assert gamma.mean() == pytest.approx(MU, abs=4 * gamma.std() / n**0.5 + 0.95**200)


def test_theorem_2_says_how_fast_the_start_is_forgotten() -> None:
    """E[gamma_t] = (1 - (1 - alpha)^t) mu: after 10 rounds at alpha 0.1 it is 65 % of the way."""
    assert constant_alpha(0.1, 4000, 10).mean() == pytest.approx(MU * (1 - 0.9**10), abs=0.002)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.5])
def test_variance_proposition(alpha: float) -> None:
    """Var(gamma) -> alpha / (2 - alpha) * sigma^2 / S."""
    expected = alpha / (2 - alpha) * SIGMA2 / S
    measured = constant_alpha(alpha, 20_000, int(8 / alpha)).var()
    assert measured == pytest.approx(expected, rel=0.05)
    assert measured < SIGMA2 / S < SIGMA2


@pytest.mark.parametrize("alpha", [0.1, None], ids=["constant", "1/n"])
def test_the_confidence_interval_covers_the_mean_reward(alpha: float | None) -> None:
    """95 % intervals, from what a cluster keeps, cover mu in about 95 % of 4,000 clients."""
    rng, n, rounds = np.random.default_rng(1), 4000, 100
    gamma, gamma2 = np.zeros(n), np.zeros(n)
    for t in range(1, rounds + 1):
        omega, a = rewards(n, rng), alpha or 1 / t
        gamma, gamma2 = update_weights(gamma, np.arange(n), omega, a), update_weights(gamma2, np.arange(n), omega**2, a)
    low, high = weight_interval(gamma, gamma2, np.full(n, rounds), alpha)
    covered = ((low <= MU) & (high >= MU)).mean()
    assert 0.90 < covered < 0.98


@given(st.floats(0.01, 0.99), st.floats(0, 1), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_interactions_are_bounded(alpha: float, start: float, rounds: int) -> None:
    """P_t <= (1 - alpha)^t P_0 + 1 - (1 - alpha)^t, which tends to 1.

    The paper's constant has the exponent t + 1 in the last term; summing tau = 0..t-1 gives t, and the bound is tight.
    """
    P = np.full((3, 3), start)
    for _ in range(rounds):
        P = update_interactions(P, [0, 1, 2], [1.0, 1.0, 1.0], alpha)
    bound = (1 - alpha) ** rounds * start + 1 - (1 - alpha) ** rounds
    np.testing.assert_allclose(P, bound, atol=1e-12)
    assert (P <= 1 + 1e-12).all()


@given(st.floats(0.01, 0.99), st.integers(3, 8), st.integers(1, 40), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_interactions_are_bounded_whatever_the_rewards_and_the_cohorts(alpha: float, K: int, rounds: int, seed: int) -> None:
    """A pair that met n times in t rounds is at most at the bound of n rounds, and that is at most the bound of t rounds."""
    rng = np.random.default_rng(seed)
    start = rng.random((K, K))
    P, met = start, np.zeros((K, K), np.int64)
    for _ in range(rounds):
        cohort = rng.choice(K, rng.integers(1, K + 1), replace=False)
        P = update_interactions(P, cohort, rng.choice([0.0, 1.0, rng.random()], len(cohort)), alpha)
        met[np.ix_(cohort, cohort)] += 1
    by_meetings, by_rounds = ((1 - alpha) ** n * start + 1 - (1 - alpha) ** n for n in (met, rounds))
    assert (P >= -1e-12).all()
    assert (by_meetings + 1e-12 >= P).all()
    assert (by_meetings <= by_rounds + 1e-12).all()
    assert (by_rounds <= 1 + 1e-12).all()


@given(st.lists(st.integers(3, 12), min_size=1, max_size=8), st.sampled_from([0.1, 0.2, 0.25, 0.5]))
def test_sample_rate_theorem(tens: list[int], rate: float) -> None:
    """Clusters of at least 3 / rate clients, rate * size whole: splitting does not change how many clients train."""
    sizes = [round(m / rate) for m in tens]
    assert all(size >= 3 / rate for size in sizes)
    assert sum(cohort_size(size, rate) for size in sizes) == cohort_size(sum(sizes), rate) == sum(tens)


@given(st.floats(0.01, 1), st.lists(st.integers(0, 300), min_size=1, max_size=20))
def test_sample_rate_theorem_up_to_rounding(rate: float, more: list[int]) -> None:
    """Clusters of any sizes from 3 / rate on: every cohort is rounded by half a client at most, and so is that of the whole."""
    sizes = [math.ceil(3 / rate) + n for n in more]
    split, whole = sum(cohort_size(size, rate) for size in sizes), cohort_size(sum(sizes), rate)
    assert abs(split - whole) <= (len(sizes) + 1) / 2


def test_rounding_may_add_a_client() -> None:
    """Two clusters of 35 at rate 0.1 train 4 clients each, and one of 70 trains 7."""
    assert (2 * cohort_size(35, 0.1), cohort_size(70, 0.1)) == (8, 7)


def test_sample_rate_grows_below_the_threshold() -> None:
    """Ten clusters of 10 at rate 0.1 need 3 clients each: three times the cohort of one cluster of 100."""
    assert 10 * cohort_size(10, 0.1) == 30 == 3 * cohort_size(100, 0.1)
