"""Differences between methods, with numbers that one can do in the head and with scipy as the oracle."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedgwc.core.errors import InputError
from fedgwc.metrics import differences, ranks
from fedgwc.metrics.differences import bootstrap_interval, gain_interval, holm, mcnemar, paired_difference
from fedgwc.metrics.ranks import average_ranks, cliques, critical_difference, friedman

SCORES = st.floats(0, 1).map(lambda x: round(x, 3))


@pytest.mark.parametrize("module", [differences, ranks])
def test_examples(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_three_seeds_have_the_quantile_4_3() -> None:
    d = paired_difference([3.0, 4.0, 5.0], [0.0, 0.0, 0.0])  # mean 4, deviation 1
    assert (d.high - d.mean) * math.sqrt(3) == pytest.approx(4.303, abs=5e-4)
    assert d.pairs == 3


@given(st.lists(st.tuples(SCORES, SCORES), min_size=2, max_size=8))
def test_the_interval_and_the_p_value_are_scipys(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    d = paired_difference(a, b)
    if np.ptp(a - b) < 1e-9:  # scipy has no answer there
        assert (d.low, d.high) == (d.mean, d.mean)
        return
    oracle = stats.ttest_rel(a, b)
    assert [d.p, d.low, d.high] == pytest.approx([oracle.pvalue, *oracle.confidence_interval()], abs=1e-9)


@given(st.lists(st.tuples(SCORES, SCORES), min_size=2, max_size=6))
def test_turned_around_a_difference_changes_its_sign_only(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    there, back = paired_difference(a, b), paired_difference(b, a)
    assert (there.mean, there.low, there.high, there.p) == pytest.approx((-back.mean, -back.high, -back.low, back.p))
    assert there.shown == back.shown


def test_one_seed_has_no_interval_and_shows_nothing() -> None:
    d = paired_difference([0.9], [0.1])
    assert d.mean == 0.8
    assert math.isnan(d.low)
    assert math.isnan(d.p)
    assert not d.shown


def test_the_same_scores_differ_in_nothing() -> None:
    d = paired_difference([0.1, 0.2, 0.7], [0.1, 0.2, 0.7])
    assert (d.mean, d.low, d.high, d.p, d.shown) == (0.0, 0.0, 0.0, 1.0, False)


@pytest.mark.parametrize(("scores", "reference"), [([1, 2], [1]), ([], []), ([[1]], [[1]])])
def test_only_pairs_have_differences(scores: list[float], reference: list[float]) -> None:
    with pytest.raises(InputError, match="a pair per seed"):
        paired_difference(scores, reference)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_each_p_and_bonferronis_and_keeps_their_order(p: list[float]) -> None:
    adjusted = holm(p)
    assert (adjusted >= np.array(p)).all()
    assert (adjusted <= np.minimum(1, np.array(p) * len(p)) + 1e-15).all()
    assert (np.diff(adjusted[np.argsort(p)]) >= 0).all()


def test_holm_leaves_out_what_was_not_compared() -> None:
    assert holm([0.01, np.nan, 0.04]).tolist() == pytest.approx([0.02, np.nan, 0.04], nan_ok=True)
    assert np.isnan(holm([np.nan])).all()


def test_the_bootstrap_of_equal_clients_has_no_width_and_leaves_out_who_has_no_test_samples() -> None:
    assert bootstrap_interval([0.5, 0.5, np.nan, 0.5], np.random.default_rng(0)) == (0.5, 0.5)
    assert np.isnan(bootstrap_interval([0.5, np.nan], np.random.default_rng(0))).all()


def test_the_bootstrap_of_many_is_nearly_the_normal_interval() -> None:
    x = np.random.default_rng(1).normal(0, 1, 400)
    low, high = bootstrap_interval(x, np.random.default_rng(0))
    assert [low, high] == pytest.approx(x.mean() + np.array([-1.96, 1.96]) * x.std() / 20, abs=0.01)


@given(st.integers(0, 30), st.integers(0, 30))
def test_mcnemar_is_the_exact_binomial_test(won: int, lost: int) -> None:
    oracle = stats.binomtest(won, won + lost).pvalue if won + lost else 1.0
    assert mcnemar([won], [lost])[0] == pytest.approx(oracle)


@given(*[st.integers(0, 12)] * 4)
def test_a_gains_interval_holds_it_and_turns_with_it(both: int, won: int, lost: int, neither: int) -> None:
    if not (n := both + won + lost + neither):
        return
    low, high = gain_interval([both], [won], [lost], [neither])
    assert -1 <= low[0] <= (won - lost) / n + 1e-12
    assert (won - lost) / n - 1e-12 <= high[0] <= 1
    turned = gain_interval([both], [lost], [won], [neither])
    assert (-turned[1][0], -turned[0][0]) == pytest.approx((low[0], high[0]))


def test_without_anything_in_common_wilson_intervals_combine_as_of_two_samples() -> None:
    """All margins at 0 or n give no correlation: then it is Newcombe's interval for unpaired proportions."""
    (low,), (high,) = gain_interval([0], [10], [0], [0])
    least = stats.binomtest(10, 10).proportion_ci(method="wilson").low  # of the first; the second's largest is 1 - least
    assert (low, high) == pytest.approx((1 - math.sqrt(2) * (1 - least), 1.0))


def test_a_client_without_samples_has_no_interval() -> None:
    assert np.isnan(gain_interval([0], [0], [0], [0])).all()


def test_ranks_of_two_data_sets() -> None:
    assert average_ranks([[3, 2, 1], [1, 2, 3]]).tolist() == [2, 2, 2]
    assert friedman([[3, 2, 1], [1, 2, 3]]) == 1.0
    assert friedman([[1, 1, 1], [2, 2, 2]]) == 1.0


def test_demsars_critical_differences() -> None:
    """Table 5 of the paper has q: 2.343 of 3 methods, 3.164 of 10; CD = q sqrt(k (k + 1) / 6 N)."""
    assert critical_difference(3, 1) == pytest.approx(2.343 * math.sqrt(2), abs=2e-3)
    assert critical_difference(10, 1) == pytest.approx(3.164 * math.sqrt(110 / 6), abs=5e-3)
    assert critical_difference(4, 4) == critical_difference(4, 1) / 2


def test_cliques_overlap_where_neighbours_are_near() -> None:
    assert cliques([1.0, 1.8, 2.6], 1.0) == [(1.0, 1.8), (1.8, 2.6)]
    assert cliques([1.0, 3.0], 1.0) == []


@pytest.mark.parametrize("scores", [[1, 2], [[1, float("nan")]], [[]]])
def test_a_table_with_holes_has_no_ranks(scores: list[object]) -> None:
    with pytest.raises(InputError, match="full table"):
        average_ranks(scores)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        friedman([[1, 2]])
    with pytest.raises(InputError, match="at least 2 methods"):
        critical_difference(1, 3)
