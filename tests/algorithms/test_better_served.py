"""Whose model serves whom: what the losses of those who sat out say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trials import ids

from fedgwc.algorithms.auto.second_look import Usual, better_served

FIVES = [0] * 5 + [1] * 5
THREE_OF_FIVE = [True, True, True, False, False] * 2


def both(
    side: list[int], more: Sequence[float], shift: float = 0.0, witness: list[bool] | None = None
) -> tuple[list[int], float | None]:
    """Where clients belong that lose so much more under the model of side 0, and how clear that is. All may be witnesses."""
    losses = 10.0 + np.stack([np.array(more), np.full(len(more), shift)], 1)
    sides, clear = better_served(np.array(side, np.int64), losses, np.array(witness or [True] * len(side), bool))
    return sides.tolist(), clear


def served(side: list[int], more: Sequence[float], shift: float = 0.0) -> list[int]:
    return both(side, more, shift)[0]


def test_who_is_misplaced_moves() -> None:
    assert served(FIVES, [-2, -2, 2, -2, -2, 2, 2, 2, 2, -2]) == [0, 0, 1, 0, 0, 1, 1, 1, 1, 0]
    assert served(FIVES, [-2] * 5 + [2] * 5) == FIVES


def test_a_model_that_is_better_for_everybody_draws_nobody() -> None:
    """That of side 0, by 2 for those who belong there and by 1 for the others."""
    assert served(FIVES, [-2.1, -2, -1.9, -2, -2, -1, -1, -1.1, -0.9, -1]) == FIVES
    assert served(FIVES, [-2.1, -2, -1, -2, -2, -1, -1, -1.1, -0.9, -2]) == [0, 0, 1, 0, 0, 1, 1, 1, 1, 0]


@given(st.integers(0, 2), st.integers(0, 2), st.integers(0, 10**6), st.floats(-5, 5))
def test_how_good_a_model_is_for_everybody_does_not_count(some: int, others: int, seed: int, by: float) -> None:
    """However many of the two of either side are misplaced who are no witnesses."""
    kind = [0] * (5 - some) + [1] * some + [1] * (5 - others) + [0] * others
    more = (6.0 * np.array(kind) - 3 + np.random.default_rng(seed).random(10)).tolist()
    (there, clear), (here, as_clear) = (both(FIVES, more, shift, THREE_OF_FIVE) for shift in (by, 0.0))
    assert there == here == kind
    assert clear == pytest.approx(as_clear)


@given(st.integers(3, 7), st.integers(3, 7), st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)), st.integers(0, 10**6))
def test_misplaced_clients_do_not_change_what_is_usual(n: int, m: int, some: list[int], others: list[int], seed: int) -> None:
    """Beside witnesses, who are where they belong, any number of any kind may be on either side: all find their own."""
    kind = np.array([0] * n + some + [1] * m + others)
    side = np.repeat([0, 1], [n + len(some), m + len(others)])
    witness = np.repeat([True, False, True, False], [n, len(some), m, len(others)])
    more = 6.0 * kind - 3 + np.random.default_rng(seed).random(len(kind))
    sides, clear = both(side.tolist(), more.tolist(), witness=witness.tolist())
    assert sides == kind.tolist()
    assert clear is not None
    assert clear > 4  # usual ones are more than 5 apart, and everybody differs by less than 1 from these


SIX = [-1.0, 1] * 3  # about what is usual


def test_many_misplaced_ones_do_not_hide_that_the_sides_differ() -> None:
    """Six of ten who are unsure on side 0. All 32 are 1 away from what is usual for their kind, 0 or 4, and so a deviation is
    hardly more than 1. For those who are on side 0 now 1 is usual, and some are 4 away from that: these are 1.7 deviations.
    """
    side, kind = np.repeat([0, 1], 16), np.repeat([0, 1], [10, 22])
    more = np.array([*SIX, *SIX[:4], *SIX, *SIX, *SIX, *SIX[:4]]) + 4 * kind
    witness = np.tile([True] * 6 + [False] * 10, 2)
    sides, clear = both(side.tolist(), more.tolist(), witness=witness.tolist())
    assert sides == kind.tolist()
    assert clear == pytest.approx(4 / (32 / 30) ** 0.5)
    assert both(side.tolist(), more.tolist())[1] == pytest.approx(3 / (96 / 30) ** 0.5)


@pytest.mark.parametrize("liar", range(16))
@pytest.mark.parametrize("loss", [-1e9, 1e9])
def test_one_who_lies_moves_nobody_else_and_hides_nothing(liar: int, loss: float) -> None:
    """Usual is 0 or 10, all others are 1 away from that, and one of either side is misplaced; the liar is anybody, also one of
    those. It counts as 5 away, so that a deviation is 2 at most, and an end of the gap moves by 1 at most.
    """
    side, kind = np.repeat([0, 1], 8), np.repeat([0, 1, 0], [7, 8, 1])
    more = np.array([*SIX, 1, -1, *SIX, 1, -1]) + 10 * kind
    more[liar] = loss
    sides, clear = both(side.tolist(), more.tolist(), witness=[True] * 6 + [False] * 2 + [True] * 6 + [False] * 2)
    assert np.delete(sides, liar).tolist() == np.delete(kind, liar).tolist()
    assert clear is not None
    assert clear > 4


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(-50, 50), st.integers(-50, 50), st.booleans()), max_size=20),
)
def test_which_side_is_called_the_first_does_not_matter(clients: list[tuple[int, int, int, bool]]) -> None:
    table = np.array(clients, np.int64).reshape(-1, 4)
    side, losses, witness = table[:, 0], table[:, 1:3].astype(np.float64), table[:, 3] > 0
    sides, clear = better_served(side, losses, witness)
    swapped, as_clear = better_served(1 - side, losses[:, ::-1], witness)
    assert (1 - swapped).tolist() == sides.tolist()
    assert as_clear == pytest.approx(clear)


def test_models_that_have_not_parted_move_nobody() -> None:
    assert both(FIVES, [0.0] * 10) == (FIVES, 0)
    assert both(FIVES, [2] * 5 + [-2] * 5) == (FIVES, 0)  # everybody would go to the other side


def test_all_stay_where_fewer_than_three_witnesses_of_a_side_answer() -> None:
    """Nobody tells what is usual there, and whether the models differ is not known."""
    more = [-2, 2, -2, -2, -2, 2, -2, 2]
    assert both([], []) == ([], None)
    for side in ([0] * 8, [1] * 8, [0] * 6 + [1] * 2, [0] * 2 + [1] * 6):
        assert both(side, more) == (side, None)
    side = [0] * 5 + [1] * 3
    assert served(side, more) == [0, 1, 0, 0, 0, 1, 0, 1]
    for k in (5, 6, 7):
        assert both(side, more, witness=[i != k for i in range(8)]) == (side, None)
    for k in range(5):
        assert both(side, more, witness=[i != k for i in range(8)])[1] is not None


@pytest.mark.parametrize(
    ("place", "deviation", "moves"),
    [(0, 1, 0), (3, 1, 0), (3.3, 1, 0), (3.4, 1, 1), (6, 1, 1), (3.4, 3, 0), (6, 3, 0), (6.2, 3, 0), (6.4, 3, 1), (99, 3, 1)],
)
def test_who_moves_is_nine_times_likelier_to_belong_there(place: float, deviation: float, moves: int) -> None:
    """Of 10 and 16. The logarithm of nine, 2.2, is 6 (place - 3) / deviation**2. Halfway nobody knows, and nobody moves."""
    usual = Usual(10.0, 6.0, 6 / deviation)
    assert usual.belongs(np.array([10 + place, 16 - place]), ids(0, 1)).tolist() == [moves, 1 - moves]


TWELVE = np.array([-1.5, -0.5, 0, 0, 0.5, 1.5] * 2)  # the mean of their squares, over two fewer than they are, is 1


def with_one_at(place: float, deviation: float) -> float | None:
    """How clear it is of six witnesses on either side, where 0 and 6 are usual, and another on side 0 who is at `place`."""
    more = [*(TWELVE * deviation + np.repeat([0, 6], 6)), place]
    return both([0] * 6 + [1] * 6 + [0], more, witness=[True] * 12 + [False])[1]


@pytest.mark.parametrize(("deviation", "clear"), [(1, 6), (2, 3), (3, 2)])
def test_how_clear_it_is_is_told_in_deviations(deviation: float, clear: float) -> None:
    """10 squares of one, over 10. With another one over 11: that is 0 where it belongs, on either side, and 2.5**2 far away."""
    sides = [0] * 6 + [1] * 6
    assert both(sides, (TWELVE * deviation + np.repeat([0, 6], 6)).tolist()) == (sides, pytest.approx(clear))
    assert with_one_at(0, deviation) == pytest.approx(clear * 1.1**0.5)
    for far in (99, 1e9, -99, -1e9):
        assert with_one_at(far, deviation) == pytest.approx(clear * (11 / 16.25) ** 0.5)
    assert with_one_at(6, 1) == pytest.approx(6 * 1.1**0.5)


def test_all_stay_where_it_is_not_clear_who_belongs_where() -> None:
    assert served([0, 0, 0, 1, 1], [-2, -2, 2, 2, 2]) == [0, 0, 0, 1, 1]  # too few
    side = [0] * 13 + [1, 1, 0, 0] + [1] * 13
    assert served(side, np.linspace(-1, 1, 30).tolist()) == side  # no groups
    for n in (3, 4):
        assert served([0] * 5 + [1] * 6, [-2] * 5 + [2] * (6 - n) + [-2] * n) == [0] * 5 + [1] * 6  # half of a side would go
