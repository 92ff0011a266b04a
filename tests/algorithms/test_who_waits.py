"""Who sits out after a division: clients near the cut, and witnesses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgwc.algorithms.auto.cuts import Cut, best_cut
from fedgwc.algorithms.auto.second_look import is_tried, who_waits
from fedgwc.algorithms.auto.verdicts import NO_ONE_WAITS


def waiting(behind: list[float], ahead: list[float]) -> tuple[list[int], list[int]]:
    """Of clients at these places on a line, those behind the cut first: who is unsure, and who is a witness."""
    labels = np.repeat([0, 1], [len(behind), len(ahead)])
    clients, witnesses = who_waits(Cut(labels, 0.5, np.ones(1), 20.0, np.array([*behind, *ahead])))
    assert np.isin(witnesses, clients).all()
    return [k for k in clients.tolist() if k not in witnesses], witnesses.tolist()


def test_who_stands_nearer_to_the_middle_than_most_of_its_own_side_waits() -> None:
    """Medians at -1 and 1. Of 20 on either side five may be nearer to 0 than 0.8, and six are typical."""
    behind, ahead = [-1.0] * 14 + [-0.79, -0.3, -0.81, -0.1, -0.5, -0.6], [1.0] * 15 + [0.8, 0.85, 0.7, 2, 3]
    assert waiting(behind, ahead) == ([14, 15, 17, 18, 19, 37], [*range(6), *range(20, 26)])


def test_where_the_sides_are_far_apart_only_witnesses_wait() -> None:
    """Of 20 on either side, five are 0.8 from the middle or less."""
    witnesses = [*range(6), *range(20, 26)]
    assert waiting([-1.0] * 15 + [-0.8] * 5, [1.0] * 15 + [0.8] * 5) == ([], witnesses)
    assert waiting([-1.0] * 15 + [-0.79] * 5, [1.0] * 20) == ([*range(15, 20)], witnesses)


def test_who_stands_beyond_the_middle_waits_first() -> None:
    """Ten of 42."""
    assert waiting([-1.0] * 30 + [-0.01] * 6 + [0.9] * 6, [1.0] * 15) == (
        [*range(30, 34), *range(36, 42)],
        [*range(7), *range(42, 47)],
    )
    assert waiting([-1.0] * 15, [0.01] * 6 + [-0.9] * 6 + [1.0] * 30) == (
        [*range(15, 19), *range(21, 27)],
        [*range(5), *range(27, 34)],
    )


def test_those_nearest_to_the_median_of_either_side_are_witnesses() -> None:
    """From -12 to -8 on one side, and from 8 to 12 on the other; at -5, -4 and -3, and at 3, 4 and 5, somebody is unsure."""
    unsure, witnesses = waiting([*range(-17, -2)], [*range(3, 18)])
    assert unsure == [12, 13, 14, 15, 16, 17]
    assert witnesses == [*range(5, 10), *range(20, 25)]


def test_those_beyond_the_median_are_no_witnesses_if_others_are_nearer_to_it() -> None:
    behind, ahead = [-30.0] * 6 + [-11, -10, -9] + [-8.5] * 5 + [-1], [10.0] * 15
    assert waiting(behind, ahead) == ([14], [*range(6, 11), *range(15, 20)])


def test_nobody_is_unsure_and_a_witness() -> None:
    """Hardly anybody is near the median, so witnesses are those who would be unsure if there were not four already."""
    assert waiting([-3.0] * 8 + [-1.0] + [-0.4] * 8, [1.0] * 15) == ([*range(9, 13)], [8, *range(13, 17), *range(17, 22)])


@pytest.mark.parametrize(("size", "witnesses"), [(9, 3), (11, 3), (12, 4), (17, 5), (18, 6), (20, 6), (21, 7), (24, 7), (100, 7)])
def test_there_are_seven_witnesses_of_a_side_and_a_third_of_it_at_most(size: int, witnesses: int) -> None:
    """Whether somebody is unsure, the last of one side or of the other, or nobody is."""
    who = [*range(witnesses), *range(size, size + 5)]
    assert waiting([-1.0] * size, [1.0] * 15) == ([], who)
    assert waiting([-1.0] * (size - 1) + [-0.1], [1.0] * 15) == ([size - 1], who)
    assert waiting([-1.0] * size, [1.0] * 14 + [0.1]) == ([size + 14], who)


@pytest.mark.parametrize("sizes", [(8, 8), (8, 9), (9, 8), (8, 40), (40, 8)])
def test_nobody_waits_where_fewer_than_nine_are_on_a_side(sizes: tuple[int, int]) -> None:
    behind, ahead = ([-1.0] * (n - 1) + [-0.1] for n in sizes)
    assert waiting(behind, [-x for x in ahead]) == ([], [])


@pytest.mark.parametrize(
    ("sizes", "enough"), [((9, 9), False), ((14, 40), False), ((40, 14), False), ((15, 15), True), ((15, 40), True)]
)
def test_of_a_side_of_fewer_than_fifteen_somebody_waits_but_too_few(sizes: tuple[int, int], enough: bool) -> None:
    labels = np.repeat([0, 1], sizes)
    cut = Cut(labels, 0.5, np.ones(1), 20.0, 2.0 * labels - 1)
    assert len(who_waits(cut).clients)
    assert is_tried(cut, who_waits(cut)) == enough
    assert not is_tried(cut, NO_ONE_WAITS)


@pytest.mark.parametrize(("size", "most"), [(9, 2), (11, 2), (12, 3), (15, 3), (16, 4), (19, 4), (20, 5), (29, 7), (100, 25)])
def test_a_quarter_of_a_side_is_unsure_at_most(size: int, most: int) -> None:
    few = (size - 1) // 2
    unsure, _ = waiting([-1.0] * (size - few) + [-0.1] * few, [1.0] * 15)
    assert unsure == [*range(size - few, size - few + most)]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 10**6))
def test_of_either_side_some_wait_but_not_most(some: int, others: int, seed: int) -> None:
    """Wherever they stand, those who are unsure are a quarter at most, and there are as many witnesses as there may be."""
    places = np.random.default_rng(seed).normal(size=some + others)
    unsure, witnesses = waiting(places[:some].tolist(), places[some:].tolist())
    assert sorted({*unsure, *witnesses}) == sorted([*unsure, *witnesses])
    if min(some, others) < 9:
        assert (unsure, witnesses) == ([], [])
        return
    for who, size in ((range(some), some), (range(some, some + others), others)):
        assert sum(k in who for k in witnesses) == min(size // 3, 7)
        assert sum(k in who for k in unsure) <= size / 4


def test_a_cut_says_where_clients_stand_on_its_line() -> None:
    points = np.random.default_rng(0).normal(np.repeat([[-2.0, 0.0], [2.0, 1.0]], 15, 0), 0.3)
    cut = best_cut(points, 3)
    assert cut is not None
    np.testing.assert_allclose(cut.on_line, points @ cut.line)
    assert cut.on_line[cut.labels == 1].mean() > cut.on_line[cut.labels == 0].mean()
