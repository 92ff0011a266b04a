"""Masked sums: the masks cancel exactly, and what a single party sends looks like random bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from fedgwc.algorithms.auto.readings import loss_variances
from fedgwc.algorithms.fedgwc.rewards import gaussian_rewards, rewards_around
from fedgwc.core.errors import InputError
from fedgwc.flower.masking import MOST_PARTIES, decode, encode, is_valid_key, mask, new_secret, public_key, total
from fedgwc.flower.moments import LARGEST, counted_steps, moments, padded, squared_means, statistics, variances

ROUNDING = float(np.finfo(np.float32).eps)


def masked(numbers: list[np.ndarray], purpose: bytes = b"test") -> list[np.ndarray]:
    secrets = [new_secret() for _ in numbers]
    keys = [public_key(s) for s in secrets]
    words = [encode(x, len(numbers)) for x in numbers]
    return [w + mask(s, keys, purpose, w.shape) for s, w in zip(secrets, words, strict=True)]


@pytest.mark.parametrize("parties", [1, 2, 3, 7])
def test_the_masks_cancel_exactly(parties: int) -> None:
    numbers = [np.array([1.5, -2.25, 1e6 + 0.5, 1e12]) * (i + 1) for i in range(parties)]
    factor = parties * (parties + 1) / 2
    assert decode(total(masked(numbers))).tolist() == [1.5 * factor, -2.25 * factor, (1e6 + 0.5) * factor, 1e12 * factor]


def test_one_party_missing_and_nothing_is_left_but_noise() -> None:
    sent = masked([np.ones(2000)] * 4)
    for missing in range(4):
        rest = total([w for i, w in enumerate(sent) if i != missing])
        assert kstest(rest.ravel() / 2.0**64, "uniform").pvalue > 1e-6


def test_who_was_told_something_else_does_not_cancel() -> None:
    """A server that tells one party of another company, or another centre, gets noise."""
    secrets = [new_secret() for _ in range(4)]
    keys = [public_key(s) for s in secrets]
    word = np.zeros((2, 500), np.uint64)
    same = total([word + mask(s, keys[:3], b"a", word.shape) for s in secrets[:3]])
    assert not same.any()
    for told, purpose in ((keys, b"a"), (keys[:3], b"b")):
        sent = [mask(s, keys[:3], b"a", word.shape) for s in secrets[:2]] + [mask(secrets[2], told, purpose, word.shape)]
        assert kstest(total(sent).ravel() / 2.0**64, "uniform").pvalue > 1e-6


def test_what_one_party_sends_is_uniform_whatever_it_holds() -> None:
    """The same statistics for a vector of zeros and for large losses, bit by bit; and no bit in common with the last time."""
    for numbers in (np.zeros(4000), np.full(4000, 123.456)):
        first, again = (masked([numbers] * 3)[0] for _ in range(2))
        for words in (*first, *again, first[0] - again[0]):
            assert kstest(words / 2.0**64, "uniform").pvalue > 1e-6
            bits = np.unpackbits(words.view(np.uint8)).reshape(len(words), 64).mean(0)
            assert np.abs(bits - 0.5).max() < 6 * 0.5 / np.sqrt(len(words))  # six standard deviations
        assert not (first == again).any()


def test_a_foreign_key_and_a_worthless_one_are_refused() -> None:
    secret = new_secret()
    with pytest.raises(InputError, match="not among"):
        mask(secret, [public_key(new_secret())], b"", (1,))
    with pytest.raises(ValueError, match="shared key"):
        mask(secret, [public_key(secret), bytes(32)], b"", (1,))  # a point that gives everybody the same secret
    assert [is_valid_key(key) for key in (public_key(secret), bytes(32), b"short")] == [True, False, False]


def test_too_large_for_a_sum_is_refused_and_not_wrapped() -> None:
    assert decode(encode(np.array([4e15]), 1)) == 4e15
    for number, parties in ((4e15, 2), (np.nan, 3), (np.inf, 3), (1.0, MOST_PARTIES + 1)):
        with pytest.raises(InputError, match="too large"):
            encode(np.array([number]), parties)


def test_steps_that_three_clients_made() -> None:
    assert counted_steps([5, 2, 9, 7]) == 5
    assert counted_steps([4, 4, 4]) == 4


def private_sums(x: np.ndarray, nodes: np.ndarray, weights: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """The exchange of sums without its messages."""
    return decode(total(masked([moments(x[nodes == node], weights[nodes == node], centre) for node in np.unique(nodes)])))


def private_rewards(losses: list[list[float]], nodes: np.ndarray, sizes: np.ndarray | None, centre: float) -> np.ndarray:
    """All three exchanges without the messages."""
    steps = np.array([len(x) for x in losses])
    S = counted_steps(steps.tolist())
    middle = np.full(S, centre)
    weights = None if sizes is None else sizes * len(sizes) / sizes.sum()
    sums = private_sums(padded(losses, S), nodes, np.ones(len(losses)) if weights is None else weights, middle)
    mean, variance = statistics(sums, steps, weights, middle, ROUNDING)
    return rewards_around(padded(losses, S), mean, variance)


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(3, 12),
    level=st.sampled_from([0.0, 0.01, 2.3, 30.0, 1e3]),
    spread=st.sampled_from([0.0, 2e-4, 1e-2, 1.0]),
    outlier=st.sampled_from([0.0, 50.0, LARGEST / 2]),
    weighted=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_rewards_equal_those_of_open_losses(
    n: int, level: float, spread: float, outlier: float, weighted: bool, seed: int
) -> None:
    """Any cohort on any nodes, clients with fewer steps, somebody far off: within 1e-6 where the variance exceeds 1e-8."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(1, 5, n)
    losses = [(level + spread * rng.standard_normal(s)).astype(np.float32).tolist() for s in steps]
    losses[0] = [x + outlier for x in losses[0]]
    sizes = rng.integers(1, 500, n).astype(np.float64) if weighted else None
    got = private_rewards(losses, rng.integers(0, 4, n), sizes, level + spread * rng.standard_normal())
    x = padded(losses, counted_steps(steps.tolist()))
    expected = gaussian_rewards(x.astype(np.float32), sizes=sizes)
    variances = [np.var(col[np.isfinite(col)], ddof=1) for col in x.T]
    if min(variances) > 1e-8:
        np.testing.assert_allclose(got, expected, atol=1e-6, rtol=0)
    else:
        assert ((got >= 0) & (got <= 1)).all()
        if spread == 0 and outlier == 0:
            np.testing.assert_array_equal(got, 1.0)  # equal losses


@settings(max_examples=100, deadline=None)
@given(
    n=st.integers(3, 12),
    level=st.sampled_from([0.0, 0.01, 2.3, 30.0]),
    apart=st.sampled_from([0.0, 1e-2, 1.0]),
    outlier=st.sampled_from([0.0, 50.0]),
    seed=st.integers(0, 10**6),
)
def test_variances_equal_those_of_open_losses(n: int, level: float, apart: float, outlier: float, seed: int) -> None:
    """On any nodes, around any centre, for clients with fewer steps too."""
    rng = np.random.default_rng(seed)
    steps, nodes = rng.integers(1, 9, n), rng.integers(0, 4, n)
    S = counted_steps(steps.tolist())
    x = level + apart * rng.standard_normal((n, 1)) + 0.1 * rng.standard_normal((n, 8)) + np.linspace(0.5, 0, 8)
    x[0] += outlier
    x = padded([row[:k].tolist() for row, k in zip(x, steps, strict=True)], S)
    centre = level * rng.random(S)
    sums = private_sums(x, nodes, np.ones(n), centre)
    mean, _ = statistics(sums, steps, None, centre, ROUNDING)
    own = decode(total(masked([np.array(squared_means(x[nodes == node], mean)) for node in np.unique(nodes)])))
    np.testing.assert_allclose(variances(float(own), sums, steps), loss_variances(x), rtol=1e-6, atol=1e-9)


def test_the_squares_of_means_need_no_more_room_than_those_of_a_step() -> None:
    x = np.full((3, 1000), LARGEST)
    assert squared_means(x, np.zeros(1000)) == pytest.approx(moments(x, np.ones(3), np.zeros(1000))[1].max())


@pytest.mark.parametrize(("own", "possible"), [(-1e-3, False), (0.0, True), (2.0, True), (2.01, False)])
def test_squares_of_means_that_no_losses_have_are_told_apart(own: float, possible: bool) -> None:
    """Two squared losses of 1 in each of two steps: as means they are 4 at most, which is 2 a step."""
    sums, steps = np.array([[0.0, 0.0], [2.0, 2.0]]), np.full(4, 2)
    if possible:
        assert variances(own, sums, steps) == pytest.approx((2 * own / 3, (4 - 2 * own) / 3))
    else:
        with pytest.raises(ValueError, match="no losses"):
            variances(own, sums, steps)


@pytest.mark.parametrize("sums", [[[9e9], [1.0]], [[2.0], [-5.0]], [[30.0], [1.0]]])
def test_sums_that_no_losses_have_are_told_apart(sums: list[list[float]]) -> None:
    """A mean beyond all losses, squares below zero, squares too small for the mean."""
    with pytest.raises(ValueError, match="no losses"):
        statistics(np.array(sums), np.ones(4, np.int64), None, np.zeros(1), ROUNDING)


def test_a_million_is_still_exact() -> None:
    losses = [[1e6], [0.5], [0.25], [0.75]]
    expected = gaussian_rewards(np.array(losses, np.float32))
    np.testing.assert_allclose(private_rewards(losses, np.arange(4), None, 0.0), expected, atol=1e-9)
