"""A division is on trial: some clients wait, and say later whose model serves them better, or that neither does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.aggregate import Server
from fedgwc.algorithms.fedgwc import FedGWC
from fedgwc.algorithms.fedgwc_state import Cluster, FedGWCState, Verdict, copied
from fedgwc.algorithms.fedgwc_state import Split as Division
from fedgwc.algorithms.learning import learnt
from fedgwc.algorithms.membership import with_members
from fedgwc.algorithms.second_look import Usual, better_served, is_tried, resolve_trials, who_waits
from fedgwc.algorithms.verdicts import NO_ONE_WAITS, Waiting
from fedgwc.algorithms.windows import counted_down, with_window
from fedgwc.codec import pack, unpack
from fedgwc.core import Ids, Rng, Scores, Split, TooFewReplies, Updates
from fedgwc.cuts import Cut, best_cut
from fedgwc.errors import InputError
from fedgwc.flower.growing import grow
from fedgwc.perception import perception_distances
from fedgwc.readings import Readings
from fedgwc.replay import Trace, replay
from fedgwc.report.convergence import mse_by_cluster
from fedgwc.runner import rounds

ASK = FedGWC(rate=0.2, second_look=True)


def ids(*clients: int) -> Ids:
    return np.array(clients, np.int64)


# Who waits


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


# Whose model serves whom

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


# Other members

FIVE = ids(0, 2, 4, 6, 8)


def squared(points: list[float]) -> NDArray[np.float64]:
    return np.square(np.subtract.outer(points, points))


def known(algorithm: FedGWC = ASK, real: Any = np.float64, whole: Any = np.int64) -> Cluster:
    """Five clients at 0, 3, 50, 60 and 6 on a line, and numbers that tell places apart."""
    [c] = algorithm.init(torch.zeros(1), 5).clusters
    K = np.arange(5.0)
    pairs = (10 * K[:, None] + K if c.by_pairs else K) + 1
    means: dict[str, Any] = {name: (pairs + 100 * i).astype(real) for i, name in enumerate(("P", "sides", "spreads"))}
    if c.by_pairs:
        means |= {"distances": squared([0, 3, 50, 60, 6]).astype(real), "echo": (pairs - 7).astype(real), "level": K + 0.5}
    else:
        means["paths"] = np.stack([K, K**2], 1)
    c = replace(c, members=FIVE, visits=pairs.astype(whole), gamma=K + 1, gamma2=K + 2, late=ids(0, 2, 1, 0, 2), **means)
    return replace(c, before=ids(1, 2), cut=ids(0, 0, 1, 1, 1), told=3.0, told2=4.0, ripe=20, attempts=2)


@pytest.mark.parametrize(("real", "whole"), [(np.float64, np.int64), (np.float32, np.int16)])
def test_what_is_known_of_those_who_stay_is_kept(real: Any, whole: Any) -> None:
    """4 and 6 leave, and 5 comes."""
    was = known(real=real, whole=whole)
    before = pack(was)
    now = with_members(was, ids(0, 2, 5, 8))
    for name in ("P", "visits", "sides", "spreads", "echo"):
        old, new = getattr(was, name), getattr(now, name)
        assert new.dtype == old.dtype
        assert new.tolist() == [[*old[k, :2], 0, old[k, 4]] if k >= 0 else [0] * 4 for k in (0, 1, -1, 4)]
    assert now.gamma.tolist() == [1, 2, 0, 5]
    assert now.gamma2.tolist() == [2, 3, 0, 6]
    np.testing.assert_array_equal(now.level, [0.5, 1.5, np.nan, 4.5])
    assert now.late is not None
    assert now.late.tolist() == [0, 2, 0, 2]
    assert (now.id, now.server, now.attempts) == (was.id, was.server, 2)
    assert pack(was) == before


@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_who_comes_stands_in_the_middle_of_those_who_stayed(real: Any) -> None:
    """Who stays is at 0, 3 and 6 of a line: the middle is 3, wherever the others were."""
    now = with_members(known(real=real), ids(0, 2, 5, 7, 8))
    assert now.distances is not None
    assert now.distances.dtype == real
    np.testing.assert_allclose(now.distances, squared([0, 3, 3, 3, 6]), atol=1e-5)


def test_by_client_paths_are_kept_and_who_comes_takes_the_middle_one() -> None:
    now = with_members(known(replace(ASK, pairs_up_to=2)), ids(0, 2, 5, 8))
    assert now.distances is None
    assert now.paths is not None
    assert now.paths.tolist() == [[0, 0], [1, 1], [5 / 3, 17 / 3], [4, 16]]
    assert now.visits.tolist() == [1, 2, 0, 5]


def test_the_same_members_are_the_same_cluster() -> None:
    c = known()
    assert with_members(c, FIVE.copy()) is c


def test_what_was_known_by_place_is_forgotten() -> None:
    now = with_members(known(), ids(0, 2, 4, 6))
    assert (now.cut, now.told, now.told2) == (None, 0, 0)


def test_who_trained_last_is_still_known_unless_one_of_them_left() -> None:
    """2 and 4."""
    for some, places in ((ids(0, 1, 2, 3, 4, 6, 8), [2, 4]), (ids(2, 4), [0, 1])):
        before = with_members(known(), some).before
        assert before is not None
        assert before.tolist() == places
    assert with_members(known(), ids(0, 2, 6)).before is None


@given(st.integers(0, 10**6), st.booleans(), st.data())
def test_who_leaves_and_comes_back_changes_nothing_among_the_others(seed: int, by_pairs: bool, data: st.DataObject) -> None:
    """Whoever else came and went meanwhile."""
    rng = np.random.default_rng(seed)
    K = data.draw(st.integers(2, 9))
    at = ids(*sorted(data.draw(st.sets(st.integers(0, K - 1), min_size=1))))
    [c] = replace(ASK, pairs_up_to=K if by_pairs else 0).init(torch.zeros(1), K).clusters
    members = np.sort(rng.choice(30, K, replace=False))
    shape = (K, K) if by_pairs else (K,)
    c = replace(c, members=members, P=rng.random(shape), visits=rng.integers(0, 9, shape), gamma=rng.random(K))
    c = replace(c, late=rng.integers(0, 4, K), paths=None if by_pairs else rng.random((K, 3)))
    if by_pairs:
        c = replace(c, echo=rng.normal(size=shape), level=rng.random(K), distances=squared(rng.random(K).tolist()))
    others = np.setdiff1d(np.arange(30), members)[: rng.integers(0, 4)]
    again = with_members(with_members(c, np.union1d(members[at], others)), members)
    for name in ("P", "visits", "gamma", "late", "level", "echo", "distances", "paths"):
        old, new = getattr(c, name), getattr(again, name)
        assert (old is None) == (new is None)
        if old is not None:
            among = (at, slice(None)) if name == "paths" else np.ix_(*[at] * old.ndim)
            np.testing.assert_array_equal(new[among], old[among], err_msg=name)
            assert new.shape == old.shape
    if again.distances is not None:
        np.testing.assert_array_equal(again.distances, again.distances.T)
        assert not again.distances.diagonal().any()


# The second look

SIDE = np.repeat([0, 1], 25)
WAITING = np.concatenate([np.arange(20, 25), np.arange(45, 50)])
WAIT = Waiting(WAITING, np.setdiff1d(WAITING, [24, 49]))  # four witnesses of either side, and one who is unsure


class Kinds:
    """Clients of two kinds: a model at 0 serves the first, one at 1 the second. Training moves a model all the way."""

    def __init__(self, kind: NDArray[Any], silent: Sequence[int] = (), stand_ins: Mapping[int, int] | None = None) -> None:
        self.kind, self.silent, self.stand_ins = kind, silent, stand_ins or {}
        self.asked: list[list[int]] = []
        self.trained: list[list[int]] = []

    def there(self, clients: Ids) -> tuple[Ids, NDArray[np.bool_]]:
        present = np.array([self.stand_ins.get(k, k) for k in clients.tolist()], np.int64)
        return present, ~np.isin(present, self.silent)

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        self.trained.append(clients.tolist())
        present, answer = self.there(clients)
        present = present[answer]
        n, target = len(present), torch.from_numpy(self.kind[present].astype(float))[:, None]
        losses = 1 + 0.1 * np.random.default_rng(seed).random((n, 4))
        return Updates(present, target.expand(n, models.shape[1]), torch.from_numpy(losses), torch.ones(n))

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        assert split == "train"
        self.asked.append(np.unique(clients).tolist())
        present, answer = self.there(clients)
        present, row = present[answer], which[answer]
        n, loss = len(present), abs(models[row, 0].double().numpy() - self.kind[present])
        return Scores(present, loss, np.zeros((n, 1)), np.ones((n, 1)))


class Unsure(Kinds):
    """24 leaves the question about the second model open."""

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        answer = (clients != 24) | (which == 0)
        return super().evaluate(clients[answer], models, which[answer], split)


class Lost(Kinds):
    """The first model is of no use to 24."""

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        scores = super().evaluate(clients, models, which, split)
        return replace(scores, loss=np.where((clients == 24) & (which == 0), np.nan, scores.loss))


class Away(Kinds):
    """Too few of them answer."""

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        super().evaluate(clients, models, which, split)
        raise TooFewReplies


class Rough(Kinds):
    """Of five clients in a row, losses under the first model are wrong by -1, -1, 1, 1 and 0 times `by`.

    Of those who wait the mean of the squares, over two fewer than they are, is the square of `by`.
    """

    def __init__(self, kind: NDArray[Any], by: float) -> None:
        super().__init__(kind)
        self.by = by

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        scores = super().evaluate(clients, models, which, split)
        return replace(scores, loss=scores.loss + self.by * np.array([-1, -1, 1, 1, 0])[clients % 5] * (which == 0))


class Slow(Rough):
    """A round moves a model by an eightieth towards its clients: from halfway it takes 40 rounds."""

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        told = super().train(clients, models, which, seed)
        return replace(told, models=models[which] + (told.models - 0.5) / 40)


def but(*misplaced: int) -> NDArray[Any]:
    """The kinds of 50 clients, if all but these are where they belong."""
    return SIDE ^ np.isin(np.arange(50), misplaced)


def divided(waiting: Waiting = WAIT, side: Ids = SIDE) -> FedGWCState:
    """50 clients on the two sides of a cut, whose models have become 0 and 1."""
    state = ASK.init(torch.zeros(1, dtype=torch.float64), 50)
    root = replace(state.clusters[0], distances=squared((side + 0.1 * np.sin(np.arange(50))).tolist()))
    return replace(state, clusters=in_two(root, side, 1, waiting), splits=(no_more(root, side),), n_born=3)


def no_more(whole: Cluster, labels: Ids, ended: int = 0) -> Division:
    return Division(whole.id, whole.parent, whole.born, ended, whole.members, labels, whole.scores, whole.undone, whole.differed)


def in_two(whole: Cluster, labels: Ids, first: int, waiting: Waiting) -> tuple[Cluster, ...]:
    children = []
    for y, c in enumerate(ASK._children(whole, labels, {}, first, 0, waiting)):
        K = len(c.members)
        met: dict[str, Any] = {"visits": np.full((K, K), 20), "ripe": K * (K - 1)}
        children.append(replace(c, server=Server(torch.full((1,), float(y), dtype=torch.float64)), **met))
    return tuple(children)


def members(state: FedGWCState) -> list[list[int]]:
    return [c.members.tolist() for c in state.clusters]


def halves(*misplaced: int) -> list[list[int]]:
    return [np.flatnonzero(but(*misplaced) == y).tolist() for y in (0, 1)]


def waiting_in(state: FedGWCState) -> list[list[int] | None]:
    return [None if c.waiting is None else c.waiting.tolist() for c in state.clusters]


def nobody_waits(state: FedGWCState, late: Ids = WAITING) -> None:
    for c in state.clusters:
        assert (c.waiting, c.witnesses) == (None, None)
        assert c.late is not None
        assert c.late.tolist() == np.where(np.isin(c.members, late), 3, 0).tolist()


CLEARLY = 1000.0  # deviations between two sides within which nobody differs: that is the most that is told
TIMES = 5  # rounds, in which the 20 of a side who do not wait train once each, 4 at a time
FIRST, LAST = 10 * TIMES, 40 * TIMES  # in which they are asked


def look(algorithm: FedGWC, state: FedGWCState, engine: Kinds, number: int = FIRST) -> tuple[FedGWCState, list[Verdict]]:
    clusters, splits, verdicts = resolve_trials(algorithm, state.clusters, state.splits, engine, 50, number)
    return replace(state, clusters=tuple(clusters), splits=tuple(splits)), verdicts


def until_nobody_waits(algorithm: FedGWC, state: FedGWCState, engine: Kinds) -> tuple[list[int], FedGWCState]:
    """The rounds in which somebody was asked, and what came of it."""
    when, number = [], 0
    while any(waiting_in(state)) and number < 300:
        number, asked = number + 1, len(engine.asked)
        state, _ = look(algorithm, state, engine, number)
        when += [number] * (len(engine.asked) - asked)
    return when, state


def test_who_waits_and_is_misplaced_changes_sides() -> None:
    state, engine = divided(), Kinds(but(24, 49))
    after, verdicts = look(ASK, state, engine)
    assert engine.asked == [WAITING.tolist()]
    assert members(after) == halves(24, 49)  # sorted, and everybody is somewhere
    nobody_waits(after)
    assert verdicts == [
        Verdict(1, 25, "moved", sizes=(24, 1), to=2, clear=CLEARLY),
        Verdict(2, 25, "moved", sizes=(24, 1), to=1, clear=CLEARLY),
    ]
    assert after.splits == state.splits
    for c in after.clusters:
        assert c.ripe == 24 * 23  # pairs of those who stayed
        assert c.cut is None or len(c.cut) == 25
        assert [len(a) for a in (c.P, c.visits, c.gamma)] == [25] * 3
    assert [c.server.theta.item() for c in after.clusters] == [0, 1]


@pytest.mark.parametrize(
    ("misplaced", "words"), [((24,), "serves 1 of them better, and it goes"), ((23, 24), "serves 2 of them better, and they go")]
)
def test_a_verdict_says_how_many_went_where(misplaced: tuple[int, ...], words: str) -> None:
    after, verdicts = look(ASK, divided(), Kinds(but(*misplaced)))
    n = len(misplaced)
    assert members(after) == halves(*misplaced)
    assert verdicts == [Verdict(1, 25, "moved", sizes=(25 - n, n), to=2, clear=CLEARLY)]
    [row] = ASK.verdicts(replace(after, verdicts=tuple(verdicts)))
    assert (row["divides"], row["to"], row["why"]) == (False, 2, f"the model of cluster 2 {words} there")


CONFIRMED = Verdict(1, 25, "confirmed", sizes=(25,), to=2, clear=CLEARLY)


def test_who_is_where_it_belongs_stays() -> None:
    state = divided()
    after, verdicts = look(ASK, state, Kinds(but(0, 30)))  # who did not wait is not asked
    assert members(after) == members(state)
    assert verdicts == [CONFIRMED]
    nobody_waits(after)
    for c, was in zip(after.clusters, state.clusters, strict=True):
        assert (c.ripe, c.P is was.P, c.cut is was.cut) == (was.ripe, True, True)


def test_no_side_becomes_smaller_than_the_smallest_group() -> None:
    """One may go if another comes; else nobody does, and the division stands."""
    guarded = replace(ASK, min_size=25)
    after, verdicts = look(guarded, divided(), Kinds(but(24)))
    assert (members(after), verdicts) == (halves(), [CONFIRMED])
    assert waiting_in(after) == [None, None]
    after, verdicts = look(guarded, divided(), Kinds(but(24, 49)))
    assert members(after) == halves(24, 49)
    assert len(verdicts) == 2


@pytest.mark.parametrize(
    "engine",
    [Away(but(24, 49)), *(Kinds(but(24, 49), silent=some) for some in (WAITING.tolist(), [20, 21], [45, 46]))],
    ids=["too few replies", "nobody", "two witnesses of the first side", "two of the second"],
)
def test_where_too_few_answer_they_go_on_waiting_but_not_for_ever(engine: Kinds) -> None:
    state = divided()
    after, verdicts = look(ASK, state, engine)
    assert all(c is was for c, was in zip(after.clusters, state.clusters, strict=True))
    assert verdicts == []
    after, verdicts = look(ASK, state, engine, LAST)
    assert (members(after), verdicts) == (halves(), [])  # nothing is undone, and nothing is said to be right
    assert after.splits == state.splits
    nobody_waits(after)
    assert engine.asked == [WAITING.tolist()] * 2


@pytest.mark.parametrize("engine", [Kinds(but(24, 49), silent=[24]), Unsure(but(24, 49)), Lost(but(24, 49))])
def test_who_does_not_answer_stays(engine: Kinds) -> None:
    after, _ = look(ASK, divided(), engine)
    assert members(after) == halves(49)
    nobody_waits(after)


@pytest.mark.parametrize(("rate", "when"), [(1.0, [10, 20, 30, 40]), (0.5, [20, 40, 60, 80]), (0.1, [67, 134, 200, 267])])
def test_who_waits_is_asked_whenever_the_others_have_trained_ten_times_more(rate: float, when: list[int]) -> None:
    """All of 20, 10 of them or 3."""
    assert until_nobody_waits(replace(ASK, rate=rate), divided(), Away(SIDE))[0] == when


@pytest.mark.parametrize(("by", "times"), [(0.0, 1), (0.2, 1), (0.39, 1), (0.41, 4), (0.8, 4)])
def test_who_waits_is_asked_again_until_it_is_clear_who_belongs_where(by: float, times: int) -> None:
    """The sides are 2 apart, with 0.4 by 5 deviations. At last it is decided anyway."""
    when, after = until_nobody_waits(ASK, divided(), Rough(but(24), by))
    assert when == [50, 100, 150, 200][:times]
    assert members(after) == halves(24)
    nobody_waits(after)


def test_who_may_well_be_where_it_belongs_stays_in_the_end() -> None:
    """24 loses 0.2 more under the first model; on its side 1 less is usual, and on the other one 1 more."""
    kind = np.where(np.arange(50) == 24, 0.6, but())
    when, after = until_nobody_waits(ASK, divided(), Rough(kind, 0.5))
    assert (len(when), members(after)) == (4, halves())
    assert members(look(ASK, divided(), Rough(kind, 0.1))[0]) == halves(24)


def test_clients_wait_until_models_have_parted() -> None:
    """The sides are 0.5 apart after 10 rounds, 1 after 20 and 1.5 after 30, and 5 deviations are 1.25."""
    state = divided()
    start = replace(state, clusters=tuple(replace(c, server=Server(torch.full((1,), 0.5))) for c in state.clusters))
    engine = Slow(but(24, 49), 0.25)
    states = [s for _, s in rounds(replace(ASK, rate=1.0), engine, torch.empty(0), 50, 30, state=start)]
    assert len(engine.asked) == 3
    assert [waiting_in(s) != [None, None] for s in states] == [True] * 29 + [False]
    assert (members(states[28]), members(states[29])) == (halves(), halves(24, 49))
    assert [c.server.theta.item() for c in states[29].clusters] == pytest.approx([0.125, 0.875])


def test_who_answers_for_another_is_not_heard() -> None:
    """0 would be served better elsewhere, but has trained its side's model since."""
    after, _ = look(ASK, divided(), Kinds(but(0, 24, 49), stand_ins={24: 0}))
    assert members(after) == halves(49)


@pytest.mark.parametrize("number", [1, FIRST - 1, FIRST + 1, 2 * FIRST - 1, LAST - 1])
def test_nobody_is_asked_at_other_times(number: int) -> None:
    state, engine = divided(), Kinds(but(24, 49))
    after, verdicts = look(ASK, state, engine, number)
    assert all(c is was for c, was in zip(after.clusters, state.clusters, strict=True))
    assert (verdicts, engine.asked) == ([], [])


def test_who_was_late_before_is_so_still() -> None:
    state = divided()
    before = np.where(np.arange(25) == 0, 1, 0)
    state = replace(state, clusters=(replace(state.clusters[0], late=before), state.clusters[1]))
    late = look(ASK, state, Kinds(but(24, 49)))[0].clusters[0].late
    assert late is not None
    assert late[0] == 1


def test_in_a_cluster_too_small_to_be_divided_nobody_is_late() -> None:
    """No window of theirs is looked at, so none would end it."""
    after, _ = look(replace(ASK, min_size=13), divided(), Kinds(but(24, 49)))
    assert [c.late for c in after.clusters] == [None, None]


def test_nobody_waits_for_ever() -> None:
    """Whoever never answers."""
    *_, (_, last) = rounds(ASK, Away(SIDE, silent=range(20)), torch.empty(0), 50, LAST, state=divided())
    assert waiting_in(last) == [None, None]


AGAIN = np.repeat([0, 1], [13, 12])  # the sides of 25 who are divided again
TEN = np.concatenate([np.arange(8, 13), np.arange(20, 25)])  # of whom these wait, and are witnesses but for the last


def two_trials() -> FedGWCState:
    """Of 0-24 and of 25-49, who were divided before; their sides take turns."""
    state = divided(NO_ONE_WAITS)
    waiting = Waiting(TEN, np.setdiff1d(TEN, [12, 24]))
    left, right = (in_two(c, AGAIN, first, waiting) for c, first in zip(state.clusters, (3, 5), strict=True))
    splits = (*state.splits, *(no_more(c, AGAIN) for c in state.clusters))
    return replace(state, clusters=(left[0], right[0], left[1], right[1]), splits=splits, n_born=7)


def test_clients_move_between_the_sides_of_their_own_division() -> None:
    """One side is younger."""
    mixed = two_trials()
    mixed = replace(mixed, clusters=(*mixed.clusters[:3], replace(mixed.clusters[3], born=1)))
    kind = np.tile(AGAIN, 2)
    kind[[12, 24, 37, 49]] ^= 1
    engine = Kinds(kind)
    after, verdicts = look(replace(ASK, rate=1.0), mixed, engine, 10)
    assert engine.asked == [TEN.tolist()]
    assert members(after) == [[*range(12), 24], list(range(25, 38)), list(range(12, 24)), list(range(38, 50))]
    assert [(v.cluster, v.to) for v in verdicts] == [(3, 4), (4, 3)]
    assert [w is None for w in waiting_in(after)] == [True, False, True, False]


# Undoing

ONE_KIND = np.zeros(50, np.int64)  # whom a model at 0 serves, wherever they are


def test_sides_that_no_model_of_their_own_serves_better_are_put_together_again() -> None:
    """They are asked twice, and then which model to go on with: that at 0 serves them, not the one at 1, nor the mean, 0.5."""
    state, engine = divided(), Kinds(ONE_KIND)
    when, _ = until_nobody_waits(ASK, state, engine)
    assert when == [50, 100, 100]
    after, verdicts = look(ASK, state, engine, 100)
    assert members(after) == [list(range(50))]
    assert after.clusters[0].server.theta.tolist() == [0]
    assert after.splits == ()
    assert verdicts == [Verdict(0, 50, "rejoined", sizes=(25, 25), clear=0.0)]
    assert after.n_born == 3  # no number is given twice


def test_everybody_may_be_served_worse_by_its_own_side() -> None:
    """Then it was no group either."""
    after, [verdict] = look(ASK, divided(), Kinds(1 - SIDE), LAST)
    assert members(after) == [list(range(50))]
    assert (verdict.reason, verdict.clear) == ("rejoined", 0)


@pytest.mark.parametrize(("size", "mean"), [(15, 0.7), (20, 0.6), (35, 0.3)])
def test_the_model_is_the_mean_by_members(size: int, mean: float) -> None:
    """So many are on the side of 0 and the others on that of 1; what moves the larger side's model goes on."""
    side = np.repeat([0, 1], [size, 50 - size])
    state = divided(Waiting(*[ids(0, 1, 2, 47, 48, 49)] * 2), side)
    moving = [replace(c.server, velocity=torch.full((1,), float(len(c.members)))) for c in state.clusters]
    clusters = [replace(c, server=server) for c, server in zip(state.clusters, moving, strict=True)]
    [whole] = look(ASK, replace(state, clusters=tuple(clusters)), Kinds(np.full(50, mean)), 400)[0].clusters
    assert whole.server.theta.dtype == torch.float64
    assert whole.server.theta.tolist() == pytest.approx([mean])
    assert whole.server.velocity is not None
    assert whole.server.velocity.item() == max(size, 50 - size)


class Ruined(Kinds):
    """Some of a model at 1 is no number, and two clients of ten say that all of it is best."""

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        scores, at = super().evaluate(clients, models, which, split), models[which, 0].numpy()
        if len(models) < 3:
            return scores
        told = np.where(np.isin(clients, WAITING[:2]), -at, np.where(at > 0, np.nan, 1.0))
        return replace(scores, loss=told)


def test_a_model_that_somebody_has_ruined_is_left_out_of_the_mean() -> None:
    [whole] = look(ASK, divided(), Ruined(ONE_KIND), LAST)[0].clusters
    assert whole.server.theta.tolist() == [0]


def test_the_model_is_the_mean_where_too_few_say_which_is_best() -> None:
    """Everybody is silent at the last question."""

    class Tired(Kinds):
        def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
            if len(models) == 3:
                raise TooFewReplies
            return super().evaluate(clients, models, which, split)

    [whole] = look(ASK, divided(), Tired(ONE_KIND), LAST)[0].clusters
    assert whole.server.theta.tolist() == [0.5]


@pytest.mark.parametrize("differed", [True, False])
@pytest.mark.parametrize("by_pairs", [True, False])
def test_what_is_put_together_is_what_was_divided_and_begins_anew(by_pairs: bool, differed: bool) -> None:
    """Cluster 4 of 2, born in round 3; all that is left of the rounds since then is the model, and that another was undone.

    Of those before, whether its clients differed.
    """
    algorithm = replace(ASK, pairs_up_to=50 if by_pairs else 2)
    [root] = algorithm.init(torch.zeros(1, dtype=torch.float64), 50).clusters
    was = replace(root, id=4, parent=2, born=3, scores={2: 0.25}, attempts=7, undone=3, differed=differed)
    sides = algorithm._children(was, SIDE, {2: 0.75}, 5, 0, WAIT)
    state = FedGWCState(tuple(sides), (no_more(was, SIDE),), np.zeros(50, np.int64), 7)
    [whole] = look(algorithm, state, Kinds(ONE_KIND), LAST)[0].clusters
    assert pack(whole) == pack(replace(was, late=np.full(50, 3), attempts=0, undone=4))


@pytest.mark.parametrize(("clear", "stands"), [(2.5, True), (2.02, True), (1.98, False), (0.1, False)])
def test_less_than_two_deviations_are_too_few(clear: float, stands: bool) -> None:
    """The sides are 2 apart."""
    for number in (LAST, 2 * LAST):
        after, [verdict] = look(ASK, divided(), Rough(but(), 2 / clear), number)
        assert verdict.reason == ("confirmed" if stands else "rejoined")
        assert verdict.clear == pytest.approx(clear)
        assert members(after) == (halves() if stands else [list(range(50))])


@pytest.mark.parametrize(
    ("trained", "enough", "too_few"),
    [(10, (0.0, 0.01, 4.9), ()), (20, (0.68, 4.9), (0.0, 0.65)), (30, (1.35, 4.9), (0.65, 1.32))],
)
def test_less_is_asked_for_while_others_have_trained_less(
    trained: int, enough: tuple[float, ...], too_few: tuple[float, ...]
) -> None:
    """Nothing after 10 times, then 2/3, 4/3 and at last 2: who has not reached that is put together, others go on waiting."""

    def seen(clear: float) -> tuple[FedGWCState, list[Verdict]]:
        return look(ASK, state, Rough(but(), 2 / clear) if clear else Kinds(ONE_KIND), TIMES * trained)

    state = divided()
    for clear in enough:
        after, verdicts = seen(clear)
        assert all(c is was for c, was in zip(after.clusters, state.clusters, strict=True))
        assert (after.splits, verdicts) == (state.splits, [])
    for clear in too_few:
        after, verdicts = seen(clear)
        assert (members(after), after.splits) == ([list(range(50))], ())
        assert verdicts == [Verdict(0, 50, "rejoined", sizes=(25, 25), clear=pytest.approx(clear))]


def test_nothing_is_undone_at_the_first_question_however_late_it_comes() -> None:
    """Of 20 others three train in a round: 67 rounds are 10.05 times, 134 are 20.1."""
    assert until_nobody_waits(replace(ASK, rate=0.1), divided(), Kinds(ONE_KIND))[0] == [67, 134, 134]


class Liar(Rough):
    """One client says that one of the two models is worse than anything."""

    def __init__(self, kind: NDArray[Any], by: float, liar: int, worst: int) -> None:
        super().__init__(kind, by)
        self.liar, self.worst = liar, worst

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        scores = super().evaluate(clients, models, which, split)
        return replace(scores, loss=np.where((clients == self.liar) & (which == self.worst), 1e9, scores.loss))


@pytest.mark.parametrize("worst", [0, 1])
@pytest.mark.parametrize("liar", [20, 22, 45, 48, 49], ids=["witness", "another", "third", "fourth", "unsure"])
def test_one_who_lies_undoes_nothing_and_moves_only_itself(liar: int, worst: int) -> None:
    """24 is misplaced, and finds its own."""
    for number in (FIRST, 2 * FIRST, 3 * FIRST, LAST):
        after, verdicts = look(ASK, divided(), Liar(but(24), 0.2, liar, worst), number)
        assert {v.reason for v in verdicts} <= {"moved"}
        assert len(after.clusters) == 2
    assert verdicts
    found = np.where(np.isin(np.arange(50), members(after)[1]), 1, 0)
    assert np.delete(found, liar).tolist() == np.delete(but(24), liar).tolist()


def test_many_who_are_misplaced_undo_nothing() -> None:
    """Six of eleven who are unsure on one side."""
    waiting = Waiting(np.concatenate([np.arange(10, 25), np.arange(45, 50)]), WAIT.witnesses)
    after, verdicts = look(ASK, divided(waiting), Rough(but(*range(10, 16)), 0.5), LAST)
    assert members(after) == halves(*range(10, 16))
    [verdict] = verdicts
    assert (verdict.reason, verdict.sizes) == ("moved", (19, 6))
    assert verdict.clear == pytest.approx(2 / 0.5, rel=0.1)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (Kinds(ONE_KIND), "a model of its own served neither side better (0.0 deviations between the"),
        (Rough(but(), 0.8), "its clients and those of cluster 2 are served by different models (2.5 deviations between the"),
    ],
    ids=["rejoined", "confirmed"],
)
def test_a_verdict_says_what_came_of_a_trial(engine: Kinds, words: str) -> None:
    after, verdicts = look(ASK, divided(), engine, LAST)
    [row] = ASK.verdicts(replace(after, verdicts=tuple(verdicts)))
    assert (row["divides"], row["why"]) == (False, f"{words} two)")


@pytest.mark.parametrize("where", ["left", "right", "both"])
def test_of_two_trials_each_has_an_end_of_its_own(where: str) -> None:
    """Who was divided before stays so: cluster 1 or 2 of 0 is whole again."""
    kind = np.concatenate([0 * AGAIN if where != "right" else AGAIN, 0 * AGAIN if where != "left" else AGAIN])
    state = two_trials()
    after, verdicts = look(replace(ASK, rate=1.0), state, Kinds(kind), 40)
    left, right, sides = list(range(25)), list(range(25, 50)), members(state)
    expected = {
        "left": [(5, 2, sides[1]), (6, 2, sides[3]), (1, 0, left)],
        "right": [(3, 1, sides[0]), (4, 1, sides[2]), (2, 0, right)],
        "both": [(1, 0, left), (2, 0, right)],
    }
    assert [(c.id, c.parent, c.members.tolist()) for c in after.clusters] == expected[where]
    told = {"left": ["rejoined", "confirmed"], "right": ["confirmed", "rejoined"], "both": ["rejoined", "rejoined"]}
    assert [v.reason for v in verdicts] == told[where]
    assert [s.id for s in after.splits] == {"left": [0, 2], "right": [0, 1], "both": [0]}[where]
    assert sound(ASK, after)


def sound(algorithm: FedGWC, state: FedGWCState) -> bool:
    """Everybody is in one leaf, everybody else's parent is one that was divided, and all have different numbers."""
    tree = algorithm.tree(state)
    inner = {row["id"]: row for row in tree if row["ended"] is not None}
    assert sorted(k for row in tree if row["ended"] is None for k in row["members"]) == list(range(len(state.sampled)))
    assert len({row["id"] for row in tree}) == len(tree)
    assert all(row["id"] < state.n_born for row in tree)
    for row in tree:
        assert (row["parent"] in inner) == (row["id"] > 0)
        assert row["parent"] is None or row["born"] == inner[row["parent"]]["ended"]
    assert all(sum(row["parent"] == node for row in tree) == 2 for node in inner)
    return True


@given(st.integers(9, 41), st.integers(0, 10**6), st.floats(0, 4), st.sampled_from([FIRST, 2 * FIRST, LAST, 2 * LAST]))
def test_whoever_is_where_nobody_is_lost(size: int, seed: int, by: float, number: int) -> None:
    rng = np.random.default_rng(seed)
    side = rng.permutation(np.repeat([0, 1], [size, 50 - size]))
    some = np.stack([rng.choice(np.flatnonzero(side == y), 5, replace=False) for y in (0, 1)])
    state = divided(Waiting(np.sort(some.ravel()), np.sort(some[:, :3].ravel())), side)
    after, verdicts = look(ASK, state, Rough(rng.integers(0, 2, 50), by), number)
    assert sound(ASK, after)
    assert {v.reason for v in verdicts} <= {"moved", "confirmed", "rejoined"}
    assert ("rejoined" in {v.reason for v in verdicts}) == (len(after.clusters) == 1)
    assert any(waiting_in(after)) == (not verdicts)


# Rounds


def test_a_round_in_which_clients_move_leaves_its_state_alone_and_tells() -> None:
    state = divided()
    before = pack(state)
    after = ASK.round(state, Kinds(but(24, 49)), Rng(0, FIRST))
    assert pack(state) == before
    assert members(after) == halves(24, 49)
    assert [v.reason for v in after.verdicts[:2]] == ["moved", "moved"]


def test_who_waits_is_not_sampled() -> None:
    state = divided()
    engine = Kinds(SIDE)
    after = replace(ASK, rate=1.0).round(state, engine, Rng(0, 1))
    assert engine.trained == [np.setdiff1d(np.arange(50), WAITING).tolist()]
    assert waiting_in(after) == [WAITING[:5].tolist(), WAITING[5:].tolist()]
    some = replace(ASK, rate=0.4)  # of the 20 who do not wait
    drawn = [some._sample(state.clusters[0], state, Rng(0, t)) for t in range(100)]
    assert {len(clients) for clients in drawn} == {8}
    assert np.unique(np.concatenate(drawn)).tolist() == list(range(20))


def test_witnesses_are_known_by_their_numbers() -> None:
    """The second and the fourth of 0, 2, 4, 6 and 8 wait, and this one is a witness."""
    left, right = ASK._children(known(), ids(0, 0, 1, 1, 1), {}, 1, 0, Waiting(ids(1, 3), ids(3)))
    assert [None if a is None else a.tolist() for a in (left.waiting, left.witnesses)] == [[2], []]
    assert [None if a is None else a.tolist() for a in (right.waiting, right.witnesses)] == [[6], [6]]


def test_who_waits_stands_in_for_nobody() -> None:
    assert ASK.sitting_out(divided()).tolist() == WAITING.tolist()
    assert ASK.sitting_out(ASK.init(torch.zeros(1), 9)).tolist() == []


def test_no_window_ends_while_somebody_waits() -> None:
    over = divided().clusters[0]
    assert ASK.attempt(over, 50, 0).cluster is over
    assert ASK.attempt(replace(over, waiting=None), 50, 0).verdict is not None


def test_who_has_waited_is_drawn_like_anybody_else() -> None:
    state = ASK.init(torch.zeros(1), 30)
    [c] = state.clusters
    late = replace(c, late=np.repeat([0, 2], 15))
    for t in range(20):
        assert ASK._sample(late, state, Rng(1, t)).tolist() == ASK._sample(c, state, Rng(1, t)).tolist()


def test_those_who_do_not_wait_are_drawn_equally_often() -> None:
    """6 of 30 in 1,000 rounds."""
    state = ASK.init(torch.zeros(1), 33)
    c = replace(state.clusters[0], waiting=ids(0, 1, 2), late=np.repeat([0, 2], [20, 13]))
    often = np.bincount(np.concatenate([ASK._sample(c, state, Rng(1, t)) for t in range(1000)]), minlength=33)
    assert often[:3].tolist() == [0, 0, 0]
    np.testing.assert_allclose(often[3:], 200, atol=60)
    assert often[3:20].mean() / often[20:].mean() == pytest.approx(1, rel=0.05)


# Windows in which somebody is late


def line(before: Sequence[float], late: Ids | None = None, by_pairs: bool = True, real: Any = np.float64) -> Cluster:
    """Clients that stood at these places before a window in which all of them met."""
    K = len(before)
    [c] = replace(ASK, pairs_up_to=K if by_pairs else 0).init(torch.zeros(1), K).clusters
    c = replace(c, visits=np.full(c.visits.shape, 20), late=late)
    if by_pairs:
        return replace(c, distances=squared(list(before)).astype(real))
    return replace(c, paths=np.array(before)[:, None])


def at(*places: float, real: Any = np.float64) -> NDArray[Any]:
    """The view of a window by pairs in which clients stand there."""
    return np.tile(np.array(places, real)[:, None], len(places))


def distances(c: Cluster, *views: NDArray[Any]) -> NDArray[Any]:
    found = with_window(c, views).distances
    assert found is not None
    return found


def paths(c: Cluster, *views: NDArray[Any]) -> NDArray[Any]:
    found = with_window(c, views).paths
    assert found is not None
    return found


def unseen(c: Cluster, late: NDArray[np.bool_]) -> Cluster:
    """As if those had been in no round."""
    visits = c.visits.copy()
    visits[late] = visits.T[late] = 0
    return replace(c, visits=visits, late=None)


def test_the_losses_of_who_is_late_are_none_to_compare() -> None:
    """Places 1, 2 and 4."""
    pairs, clients, nobody = known(), known(replace(ASK, pairs_up_to=2)), replace(known(), late=None)
    assert with_window(pairs, [pairs.P]).visits.tolist() == [[1, 0, 0, 4, 0], [0] * 5, [0] * 5, [31, 0, 0, 34, 0], [0] * 5]
    assert with_window(clients, [clients.P]).visits.tolist() == [1, 0, 0, 4, 0]
    assert with_window(nobody, [nobody.P]).visits.all()


@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_who_is_late_is_as_far_from_the_others_as_before(real: Any) -> None:
    """They stand where they stood, so that every squared distance doubles; or twice as far apart, and 1 becomes 1 + 4."""
    late = ids(0, 0, 0, 1)
    for there, times in (([0, 1, 2], 2), ([10, 9, 8], 2), ([0, 2, 4], 5), ([7, 7, 7], 1)):
        found = distances(line([0, 1, 2, 9], late, real=real), at(*there, -50, real=real))
        assert found.dtype == real
        np.testing.assert_allclose(found, times * squared([0, 1, 2, 9]), rtol=1e-6)


def test_several_who_are_late_keep_their_distances_to_each_other() -> None:
    found = distances(line([0, 5, 1, 9], ids(0, 2, 0, 1)), at(0, 77, 3, -50))  # 1 and 9
    np.testing.assert_allclose(found, 10 * squared([0, 5, 1, 9]))


def test_who_is_late_at_the_end_of_a_line_stays_there() -> None:
    """In the middle of the others, at 1, it would be nearer."""
    c = line([0, 1, 2, 9])
    in_the_middle = distances(unseen(c, np.array([0, 0, 0, 1], bool)), at(0, 1, 2, 9))
    np.testing.assert_allclose(in_the_middle[3], [81 + 1, 64, 49 + 1, 0])
    np.testing.assert_allclose(distances(line([0, 1, 2, 9], ids(0, 0, 0, 1)), at(0, 1, 2, 9))[3], [162, 128, 98, 0])
    c = line([0, 1, 2, 9], by_pairs=False)
    assert paths(unseen(c, np.array([0, 0, 0, 1], bool)), np.array([10.0, 11, 12, 0]))[3].tolist() == [9, 11]


def test_by_client_who_is_late_is_as_far_from_the_mean_of_the_others_as_in_the_window_before() -> None:
    """8 beyond it."""
    found = paths(line([0, 1, 2, 9], ids(0, 0, 0, 1), by_pairs=False), np.array([10.0, 11, 12, -50]))
    assert found.tolist() == [[0, 10], [1, 11], [2, 12], [9, 19]]


def test_by_client_that_is_so_view_by_view() -> None:
    """8 beyond the others in the first view and 3 behind in the second; what was before does not count."""
    c = line([0, 1, 2, 9], ids(0, 0, 0, 2), by_pairs=False)
    c = replace(c, paths=np.array([[5.0, 5, 0, 1], [6, 5, 1, 1], [7, 5, 2, 1], [8, 5, 9, -2]]))
    found = paths(c, np.array([10.0, 11, 12, 0]), np.array([20.0, 20, 20, 0]))
    assert found[3].tolist() == [8, 5, 9, -2, 19, 17]
    assert found[:3, 4:].tolist() == [[10, 20], [11, 20], [12, 20]]


def test_where_nobody_was_apart_before_who_is_late_is_where_it_was() -> None:
    """Nothing is in proportion to nothing."""
    np.testing.assert_allclose(distances(line([0, 0, 3], ids(0, 0, 1)), at(0, 1, 9)), [[0, 1, 9], [1, 0, 9], [9, 9, 0]])


@given(st.integers(3, 9), st.integers(0, 10**6), st.booleans())
def test_where_nobody_is_late_windows_add_up(K: int, seed: int, by_pairs: bool) -> None:
    rng = np.random.default_rng(seed)
    before, views = rng.random(K), [rng.random((K, K) if by_pairs else K) for _ in range(2)]
    for late in (None, np.zeros(K, np.int64)):
        c = line(before.tolist(), late, by_pairs)
        if by_pairs:
            new = sum(perception_distances(v, c.visits) for v in views)
            np.testing.assert_allclose(distances(c, *(v.copy() for v in views)), squared(before.tolist()) + new)
        else:
            np.testing.assert_array_equal(paths(c, *views), np.column_stack([before, *views]))
        assert (c.visits == 20).all()


@given(st.integers(3, 9), st.integers(0, 10**6), st.sampled_from([np.float64, np.float32]))
def test_distances_stay_distances_whoever_is_late(K: int, seed: int, real: Any) -> None:
    """Among the others they are as if those had been in no round; theirs have all grown by the same factor, 100 at most."""
    rng = np.random.default_rng(seed)
    before, views, late = rng.random(K), rng.random((2, K, K)).astype(real), rng.integers(0, 4, K)
    late[0] = 0
    was = line(before.tolist(), late, real=real)
    found, away = distances(was, *views.copy()), late > 0
    assert found.dtype == real
    np.testing.assert_array_equal(found, found.T)
    assert not found.diagonal().any()
    assert found.min() >= 0
    others = np.ix_(~away, ~away)
    expected = distances(unseen(line(before.tolist(), real=real), away), *views.copy())
    np.testing.assert_array_equal(found[others], expected[others])
    old = squared(before.tolist())
    grown = min(found[others].sum() / old[others].sum(), 100) if (~away).sum() > 1 else 1
    np.testing.assert_allclose(found[away], grown * old[away], rtol=1e-4)


@pytest.mark.parametrize("by_pairs", [True, False])
def test_who_is_late_was_not_there_when_a_window_ends(by_pairs: bool) -> None:
    """Among the others all is as if it had been seen by nobody; itself it is elsewhere than if it had been."""
    algorithm = replace(ASK, pairs_up_to=30 if by_pairs else 2)
    rng = np.random.default_rng(0)
    before = rng.random(30)
    c = line(before.tolist(), by_pairs=by_pairs)
    c = replace(c, paths=None if by_pairs else rng.random((30, 2)))
    views = {name: rng.random(c.P.shape) for name in ("P", "sides", "spreads")}
    away = np.isin(np.arange(30), [3, 4])

    def window(c: Cluster) -> NDArray[Any]:
        mine: dict[str, Any] = {name: a.copy() for name, a in views.items()}
        mine |= {"distances": squared(before.tolist()) if by_pairs else None, "visits": c.visits.copy()}
        ended = algorithm.attempt(replace(c, **mine, ripe=900), 30, 0)
        assert ended.verdict is not None
        found = ended.cluster.distances if by_pairs else ended.cluster.paths
        assert found is not None
        return found

    there, late, not_seen = window(c), window(replace(c, late=2 * away)), window(unseen(c, away))
    others = np.ix_(~away, ~away) if by_pairs else ~away
    np.testing.assert_array_equal(late[others], not_seen[others])
    for as_usual in (there, not_seen):
        assert abs(late[3] - as_usual[3]).max() > 0.01


def test_whether_clients_differ_or_drift_is_told_by_those_who_are_not_late() -> None:
    """Four late ones lose twice as much in every step but the first, and that three times as much."""
    [c] = ASK.init(torch.zeros(1, dtype=torch.float64), 10).clusters
    losses = 1 + 0.1 * np.random.default_rng(0).random((10, 4))
    others = np.arange(4, 10)

    def heard(late: Ids | None, clients: Ids) -> Cluster:
        told = losses.copy()
        told[:4] *= [[6, 2, 2, 2]]
        models = torch.zeros(len(clients), 1, dtype=torch.float64)
        updates = Updates(clients, models, torch.from_numpy(told[clients]), torch.ones(len(clients)))
        [copy] = copied(replace(ASK.init(torch.zeros(1), 10), clusters=(replace(c, late=late),))).clusters
        [after] = learnt(ASK, [copy], updates, np.zeros(len(clients), np.int64), Rng(0, 1))
        return after

    everybody, late = np.arange(10), np.repeat([2, 0], [4, 6])
    with_late, alone, anybody = heard(late, everybody), heard(None, others), heard(None, everybody)
    for name in ("between", "within", "first", "second", "heard", "apart", "adrift"):
        assert getattr(with_late, name) == pytest.approx(getattr(alone, name)), name
    assert anybody.between > 100 * with_late.between
    assert heard(np.repeat([2, 0], [8, 2]), everybody).heard == 0  # two say nothing


def test_what_was_usual_for_those_who_waited_is_forgotten() -> None:
    state = divided()
    state = replace(state, clusters=tuple(replace(c, level=np.arange(25.0)) for c in state.clusters))
    after, _ = look(ASK, state, Kinds(but()))
    for c in after.clusters:
        assert c.level is not None
        assert np.isnan(c.level).tolist() == np.isin(c.members, WAITING).tolist()


def test_who_is_late_is_so_for_three_windows() -> None:
    """That in which it waited and the next two, all of 10 rounds."""
    after = [counted_down(late) for late in (ids(0, 3, 2, 1), ids(0, 1), ids(0, 0), None)]
    assert [late is not None and late.tolist() for late in after] == [[0, 2, 1, 0], False, False, False]
    seen: list[tuple[int, Any, Any]] = [(0, None, None)]
    for t, s in rounds(replace(ASK, rate=1.0), Kinds(SIDE), torch.empty(0), 50, 35, state=divided()):
        [c] = [c for c in s.clusters if 0 in c.members]
        now = t, waiting_in(s)[0], None if c.late is None else c.late[18:].tolist()
        seen += [now] if now[1:] != seen[-1][1:] else []
    late = [[0, 0, n, n, n, n, n] for n in (2, 1)]
    assert seen[1:] == [(1, WAITING[:5].tolist(), None), (10, None, late[0]), (20, None, late[1]), (30, None, None)]


def test_children_are_as_late_as_they_were() -> None:
    whole = replace(divided(NO_ONE_WAITS).clusters[0], late=np.repeat([0, 2, 1], [5, 10, 10]))
    left, right = ASK._children(whole, np.repeat([0, 1], [10, 15]), {}, 3, 0)
    assert left.late is not None
    assert right.late is not None
    assert (left.late.tolist(), right.late.tolist()) == ([0] * 5 + [1] * 5, [1] * 5 + [0] * 10)
    assert (left.waiting, right.waiting) == (None, None)


# From the beginning

KIND = np.repeat([0, 1], [30, 32])  # of which the last two come later
ODD = 29  # loses more like the other kind
FOUND = np.where(np.arange(62) == ODD, 1, KIND)


class Levels(Kinds):
    """Losses that no model changes."""

    def __init__(self, kind: NDArray[Any], level: NDArray[Any]) -> None:
        super().__init__(kind)
        self.level = level

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        told = super().train(clients, models, which, seed)
        noise = 0.02 * np.random.default_rng(seed).standard_normal((len(told), 4))
        return replace(told, losses=torch.from_numpy(self.level[told.clients][:, None] + noise))


class Heard(Levels):
    """1 of the first kind, 2 of the other, and of some clients of either kind between these."""

    def __init__(self) -> None:
        super().__init__(KIND, 1.0 + KIND)
        self.level[26:33] = [1.4, 1.4, 1.4, 1.6, 1.6, 1.6, 1.6]


class Drifting(Heard):
    """A step of their own leaves a third of the loss."""

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        told = super().train(clients, models, which, seed)
        told.losses[:, 1:] /= 3
        return told


def play(n_rounds: int, engine: Kinds | None = None, **settings: Any) -> tuple[FedGWC, list[FedGWCState]]:
    algorithm = FedGWC(**{"rate": 1.0, "n_max": 2, "min_size": 8, "second_look": True} | settings)
    start = torch.zeros(1, dtype=torch.float64)
    return algorithm, [s for _, s in rounds(algorithm, engine or Heard(), start, 60, n_rounds, seed=1)]


def in_the_middle_wait(state: FedGWCState) -> None:
    """And seven witnesses of either side."""
    for c, unsure in zip(state.clusters, ([26, 27, 28], [ODD, 30, 31, 32]), strict=True):
        assert c.waiting is not None
        assert np.isin(unsure, c.waiting).all()
        assert np.isin(c.waiting, c.members).all()
        assert c.witnesses is not None
        assert sorted([*unsure, *c.witnesses.tolist()]) == c.waiting.tolist()
        assert len(c.witnesses) == 7


by_pairs_and_by_client = pytest.mark.parametrize("settings", [{}, {"pairs_up_to": 2}], ids=["by pairs", "by client"])


@by_pairs_and_by_client
def test_a_client_on_the_wrong_side_finds_its_own(settings: dict[str, Any]) -> None:
    """Windows of 10 rounds: the second divides, and for 10 rounds those in the middle wait."""
    algorithm, states = play(65, **settings)
    assert states[19].splits[0].labels.tolist() == FOUND[:60].tolist()
    in_the_middle_wait(states[19])
    moved = [(t, v.cluster, v.sizes, v.to) for t, s in enumerate(states, 1) for v in s.verdicts if v.reason == "moved"]
    assert moved == [(30, 2, (30, 1), 1)]
    assert algorithm.clustering(states[-1]).labels.tolist() == KIND[:60].tolist()
    assert [c.server.theta.item() for c in states[-1].clusters] == pytest.approx([0, 1])
    assert all(c.late is None and c.waiting is None for c in states[-1].clusters)
    for s in states:
        assert sorted(k for c in s.clusters for k in c.members.tolist()) == list(range(60))
    [root, left, right] = algorithm.tree(states[-1])
    assert sorted(left["members"] + right["members"]) == root["members"]

    algorithm, states = play(65, **settings, second_look=False)
    assert algorithm.clustering(states[-1]).labels.tolist() == FOUND[:60].tolist()
    assert all(c.waiting is None and c.late is None for s in states for c in s.clusters)


class Private(Heard):
    """Rewards and sums over all clients are told, and no losses."""

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        told = super().train(clients, models, which, seed)
        seen = Readings(told.losses.numpy())
        whole = torch.from_numpy(np.array([*seen.variances(), *seen.first_losses()])).expand(len(clients), 4)
        return replace(told, losses=told.losses[:, :0], rewards=torch.from_numpy(seen.rewards()), readings=whole)


def test_nobody_waits_whose_losses_are_private() -> None:
    """They do not tell by how much one model serves them better. Those between the two kinds have the largest rewards."""
    _, states = play(20, Private(), min_size=3)
    assert [v.reason for s in states for v in s.verdicts if v.divides] == ["groups"]
    assert waiting_in(states[-1]) == [None, None]


def test_nobody_waits_where_clients_are_divided_because_they_drift() -> None:
    """In the third window; if groups are clear, they are divided in the second, and some try that, drift or no drift."""
    groups = 20, 0, "groups"
    for settings, verdict in (({"gain": 1e6}, (30, 0, "drift")), ({}, groups), ({"drift": 9.0}, groups)):
        _, states = play(verdict[0], Drifting(), **settings)
        assert told(states, "drift", "groups") == [verdict]
        assert [w is not None for w in waiting_in(states[-1])] == [verdict == groups] * 2


@pytest.mark.parametrize("who", ["waiting", "witnesses", "late"])
def test_a_state_in_which_somebody_waits_or_is_late_is_saved_and_read(who: str) -> None:
    algorithm, states = play(66)
    at = next(t for t, s in enumerate(states, 1) if any(getattr(c, who) is not None for c in s.clusters))
    again = unpack(pack(states[at - 1]), FedGWCState)
    for a, b in zip(again.clusters, states[at - 1].clusters, strict=True):
        np.testing.assert_array_equal(getattr(a, who), getattr(b, who))
    *_, (_, last) = rounds(algorithm, Heard(), torch.empty(0), 0, 66, seed=1, state=again, done=at)
    assert pack(last) == pack(states[-1])


def test_a_federation_grows_while_somebody_waits() -> None:
    """By two who are of the second kind."""
    algorithm, states = play(25)
    wider = grow(states[-1], ids(1, 1))
    assert members(wider) == [list(range(29)), list(range(29, 62))]
    assert waiting_in(wider) == waiting_in(states[-1])
    in_the_middle_wait(wider)
    found = [s for _, s in rounds(algorithm, Heard(), torch.empty(0), 0, 65, seed=1, state=wider, done=25)]
    assert algorithm.clustering(found[-1]).labels.tolist() == KIND.tolist()
    late = next(s for s in found if any(c.late is not None for c in s.clusters))
    wider = grow(late, ids(0))
    assert wider.clusters[0].late.tolist() == [*late.clusters[0].late.tolist(), 0]


# Trials from the beginning

FORCED = {"gain": -1000.0, "doubt": 12.0, "contrast": -1.0, "agreement": -1.0, "min_size": 15}  # wherever 15 are cut off


class Later(Levels):
    """Two kinds, and models that serve everybody alike until somebody has been asked so often."""

    def __init__(self, times: int) -> None:
        super().__init__(KIND, 1.0 + KIND)
        self.times = times

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        scores = super().evaluate(clients, models, which, split)
        return scores if len(self.asked) > self.times else replace(scores, loss=np.ones(len(scores.loss)))


def told(states: Sequence[FedGWCState], *reasons: str) -> list[tuple[int, int, str]]:
    """(round, cluster, reason) of all verdicts, or of some."""
    every = [(t, v.cluster, v.reason) for t, s in enumerate(states, 1) for v in s.verdicts]
    return [row for row in every if not reasons or row[2] in reasons]


def nodes(algorithm: FedGWC, state: FedGWCState) -> list[tuple[int, int | None, int, int | None]]:
    return [(row["id"], row["parent"], row["born"], row["ended"]) for row in algorithm.tree(state)]


TRIALS = "groups", "moved", "confirmed", "rejoined"


@by_pairs_and_by_client
def test_true_groups_are_confirmed(settings: dict[str, Any]) -> None:
    """Windows of 10 rounds; those who wait are asked after as many."""
    algorithm, states = play(65, Levels(KIND, 1.0 + KIND), **settings)
    assert told(states, *TRIALS) == [(20, 0, "groups"), (30, 1, "confirmed")]
    assert algorithm.clustering(states[-1]).labels.tolist() == KIND[:60].tolist()
    assert all(sound(algorithm, s) for s in states)


@by_pairs_and_by_client
def test_a_federation_without_groups_that_was_divided_is_put_together_again(settings: dict[str, Any]) -> None:
    """Asked twice in 20 rounds, and then for the best model. Three windows are skipped, the next finds a first cut, and so on."""
    engine = Kinds(np.zeros(60))
    algorithm, states = play(110, engine, **settings, **FORCED)
    first = [(10, 0, "first cut"), (20, 0, "groups"), (40, 0, "rejoined")]
    assert told(states) == [*first, *((70 + t, 0, reason) for t, _, reason in first)]
    assert len(engine.asked) == 6
    assert [[c.id for c in states[t - 1].clusters] for t in (19, 20, 39, 40, 89, 90, 109, 110)] == [
        *([0], [1, 2], [1, 2], [0]),
        *([0], [3, 4], [3, 4], [0]),
    ]
    assert [states[t - 1].n_born for t in (19, 40, 110)] == [1, 3, 5]
    assert all(sound(algorithm, s) for s in states)


@by_pairs_and_by_client
def test_a_federation_that_was_put_together_too_early_is_divided_again(settings: dict[str, Any]) -> None:
    """Models do not differ before the third question."""
    algorithm, states = play(105, Later(2), **settings)
    assert told(states, *TRIALS) == [(20, 0, "groups"), (40, 0, "rejoined"), (90, 0, "groups"), (100, 3, "confirmed")]
    assert algorithm.clustering(states[-1]).labels.tolist() == KIND[:60].tolist()
    assert nodes(algorithm, states[-1]) == [(0, None, 0, 90), (3, 0, 90, None), (4, 0, 90, None)]


@by_pairs_and_by_client
def test_a_division_within_a_confirmed_one_is_undone_by_itself(settings: dict[str, Any]) -> None:
    """Three levels of losses, and two kinds: a model of its own serves nobody of the last 60 better.

    Seven of these wait, so that half of the pairs have met by the round in which they come back, and a window is over.
    """
    engine = Levels(np.repeat([0, 1], [30, 60]), np.repeat([1.0, 5.0, 5.5], 30))
    algorithm = FedGWC(rate=1.0, min_size=15, **settings)
    states = [s for _, s in rounds(algorithm, engine, torch.zeros(1, dtype=torch.float64), 90, 55, seed=1)]
    assert told(states, *TRIALS) == [(20, 0, "groups"), (30, 1, "confirmed"), (30, 2, "groups"), (50, 2, "rejoined")]
    assert nodes(algorithm, states[-1]) == [(0, None, 0, 20), (1, 0, 20, None), (2, 0, 20, None)]
    assert members(states[-1]) == [list(range(30)), list(range(30, 90))]
    [was] = [c for c in states[28].clusters if c.id == 2]
    [now] = [c for c in states[49].clusters if c.id == 2]
    assert now.scores == was.scores != {}
    assert (was.differed, now.differed) == (False, False)  # they do, but some of them were late
    assert all(sound(algorithm, s) for s in states)


class Fading(Later):
    """Two kinds that lose alike after 10 rounds, and that no model serves better."""

    def __init__(self) -> None:
        super().__init__(1000)

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        if len(self.trained) == 10:
            self.level = np.ones(62)
        return super().train(clients, models, which, seed)


@by_pairs_and_by_client
def test_that_clients_differed_once_is_remembered_but_not_by_the_sides_of_a_division(settings: dict[str, Any]) -> None:
    """In the first window. The second divides them for that; when that is undone, it still holds."""
    _, states = play(80, Fading(), **settings)
    assert told(states) == [(10, 0, "first cut"), (20, 0, "groups"), (40, 0, "rejoined"), (80, 0, "first cut")]
    assert [(v.differed, v.differs, 2 * v.apart >= v.rounds) for t in (10, 20, 80) for v in states[t - 1].verdicts] == [
        *((False, True, True), (True, True, False), (True, True, False)),
    ]
    differed = [[c.differed for c in states[t - 1].clusters] for t in (9, 10, 19, 20, 39, 40, 50, 70, 80)]
    assert differed == [[False], [True], [True], [False] * 2, [False] * 2, [True], [True], [True], [True]]
    assert [[s.differed for s in states[t - 1].splits] for t in (20, 39)] == [[True], [True]]


@pytest.mark.parametrize(
    ("heard", "apart", "late", "now", "for_good"),
    [(4, 2, [0, 0], True, True), (4, 1, [0, 0], False, False), (4, 2, [0, 1], True, False), (0, 0, [0, 0], True, False)],
)
def test_clients_differ_for_good_if_a_window_says_so_in_which_all_are_heard(
    heard: int, apart: int, late: list[int], now: bool, for_good: bool
) -> None:
    [root] = FedGWC().init(torch.zeros(1), 2).clusters
    window = replace(root, heard=heard, apart=apart, late=ids(*late))
    assert (window.differs, window.has_differed) == (now, for_good)
    assert replace(window, differed=True).has_differed


def test_that_clients_differed_is_saved_and_read() -> None:
    """Of a cluster after the first window; of a division and its verdict after the second."""
    _, states = play(20, Fading())
    whole, parted = (unpack(pack(states[t - 1]), FedGWCState) for t in (10, 20))
    assert [row.differed for row in (*whole.clusters, *whole.verdicts)] == [True, False]
    assert [row.differed for row in (*parted.splits, *parted.verdicts, *parted.clusters)] == [True, True, False, False]


def test_what_is_recorded_of_a_division_that_is_undone() -> None:
    """The division when it is made, nothing when it is undone, and a tree in which it never was."""
    algorithm, states = play(90, Kinds(np.zeros(60)), **FORCED)
    assert {t: list(algorithm.events(s)) for t, s in enumerate(states, 1) if algorithm.events(s)} == {20: ["0"], 90: ["0"]}
    assert [list(algorithm.matrices(states[t - 1])) for t in (39, 40)] == [["end-1", "end-2"], ["end-0"]]
    [root] = algorithm.tree(states[39])
    assert root == {"id": 0, "parent": None, "born": 0, "ended": None, "members": list(range(60)), "scores": {}}
    assert algorithm.clustering(states[39]).labels.tolist() == [0] * 60
    assert algorithm.sitting_out(states[39]).tolist() == []


@by_pairs_and_by_client
def test_whoever_saves_and_resumes_during_a_trial_or_after_it_changes_nothing(settings: dict[str, Any]) -> None:
    """Before they are asked, when they have been, when all is undone, and in the windows that are skipped."""
    algorithm, states = play(102, Kinds(np.zeros(60)), **settings, **FORCED)
    packed = [pack(s) for s in states]
    for done in (20, 25, 30, 39, 40, 41, 55, 75, 90, 101):
        again = unpack(packed[done - 1], FedGWCState)
        assert pack(again) == packed[done - 1]
        later = rounds(algorithm, Kinds(np.zeros(60)), torch.empty(0), 0, min(done + 45, 102), seed=1, state=again, done=done)
        assert all(pack(s) == packed[t - 1] for t, s in later), done


def test_how_often_a_cluster_was_put_together_is_saved_and_read() -> None:
    """Once before the second trial, which is undone too."""
    _, states = play(110, Kinds(np.zeros(60)), **FORCED)
    trial, whole = (unpack(pack(states[t - 1]), FedGWCState) for t in (91, 110))
    assert [(s.id, s.undone) for s in trial.splits] == [(0, 1)]
    assert [(c.id, c.undone) for c in (*trial.clusters, *whole.clusters)] == [(3, 0), (4, 0), (0, 2)]


@by_pairs_and_by_client
def test_a_window_in_which_everybody_is_late_is_skipped(settings: dict[str, Any]) -> None:
    """Three are: nothing is told of them, and nothing of them is known later."""
    _, states = play(80, Kinds(np.zeros(60)), **settings, **FORCED)
    for t, late in ((40, 3), (49, 3), (50, 2), (59, 2), (60, 1), (69, 1), (70, None), (79, None)):
        [c] = states[t - 1].clusters
        assert (None if c.late is None else set(c.late.tolist())) == (None if late is None else {late})
        assert (c.distances, c.paths, c.cut, c.attempts) == (None, None, None, 0)
    [c] = states[79].clusters
    assert c.cut is not None
    assert c.distances is not None or c.paths is not None


@by_pairs_and_by_client
@pytest.mark.parametrize("differed", [True, False])
def test_a_window_that_is_skipped_does_not_tell_whether_clients_differ(differed: bool, settings: dict[str, Any]) -> None:
    """They do, but nobody is compared in three windows."""
    algorithm = FedGWC(rate=1.0, **settings)
    state = algorithm.init(torch.zeros(1, dtype=torch.float64), 60)
    start = replace(state, clusters=(replace(state.clusters[0], late=np.full(60, 3), differed=differed),))
    states = [s for _, s in rounds(algorithm, Levels(KIND, 1.0 + KIND), torch.empty(0), 0, 40, state=start)]
    assert [states[t - 1].clusters[0].differed for t in (10, 20, 30, 39, 40)] == [differed] * 4 + [True]


@by_pairs_and_by_client
def test_who_joined_during_a_trial_is_in_the_cluster_that_is_put_together(settings: dict[str, Any]) -> None:
    engine = Kinds(np.zeros(62))
    algorithm, states = play(25, engine, **settings, **FORCED)
    wider = grow(states[-1], ids(0, 1))
    found = [s for _, s in rounds(algorithm, engine, torch.empty(0), 0, 40, seed=1, state=wider, done=25)]
    assert all(sound(algorithm, s) for s in found[-1:])
    [whole] = found[-1].clusters
    assert (whole.id, whole.members.tolist()) == (0, list(range(62)))
    assert whole.late is not None
    assert whole.late.tolist() == [3] * 62
    assert [v.sizes for v in found[-1].verdicts] == [tuple(len(c.members) for c in wider.clusters)]


@by_pairs_and_by_client
def test_newcomers_are_not_compared_with_each_other_where_all_others_are_late(settings: dict[str, Any]) -> None:
    """20 who differ, but are no groups. Until the others have caught up, those would all stand in one place."""
    algorithm = FedGWC(rate=1.0, **settings)
    engine = Levels(np.zeros(60), 1 + 0.3 * np.random.default_rng(0).standard_normal(60))
    state = algorithm.init(torch.zeros(1, dtype=torch.float64), 40)
    state = grow(replace(state, clusters=(replace(state.clusters[0], late=np.full(40, 3)),)), np.zeros(20, np.int64))
    states = [s for _, s in rounds(algorithm, engine, torch.empty(0), 0, 40, state=state)]
    assert told(states) == [(40, 0, "first cut")]
    assert states[9].clusters[0].late is not None
    assert states[9].clusters[0].late.tolist() == [2] * 40 + [0] * 20


# What is asked for where nobody can try


def wanted(engine: Kinds, n_clients: int = 60, **settings: Any) -> tuple[str, float | None]:
    """The verdict on the second window, and the gain that was asked for; it is 70 of 60 clients."""
    algorithm = FedGWC(**{"rate": 1.0, "n_max": 2, "min_size": 8, "doubt": 12.0} | settings)
    *_, (_, last) = rounds(algorithm, engine, torch.zeros(1, dtype=torch.float64), n_clients, 20, seed=1)
    [verdict] = last.verdicts
    [row] = algorithm.verdicts(last)
    assert f"{verdict.wanted:g} is asked for" in row["why"]
    return verdict.reason, verdict.wanted


@by_pairs_and_by_client
@pytest.mark.parametrize(("gain", "alone"), [(-5, "groups"), (50, "groups"), (65, "no groups")])
def test_more_gain_is_asked_for_without_a_second_look(gain: float, alone: str, settings: dict[str, Any]) -> None:
    assert wanted(Heard(), gain=gain, **settings) == ("groups", gain)
    assert wanted(Heard(), gain=gain, second_look=False, **settings) == (alone, gain + 12)
    assert wanted(Heard(), gain=gain, doubt=1, second_look=False, **settings) == ("groups", gain + 1)


@pytest.mark.parametrize(("few", "gain"), [(8, 16), (9, 16), (14, 16), (15, 4)])
def test_more_gain_is_asked_for_where_too_few_are_on_a_side(few: int, gain: float) -> None:
    """Of 8 nobody may wait, of 9 to 14 so few that it is not enough."""
    kind = np.repeat([0, 1], [few, 46])
    assert wanted(Levels(kind, 1.0 + kind), few + 46) == ("groups", gain)


@pytest.mark.parametrize("few", [8, 9, 14])
def test_where_more_gain_is_asked_for_the_division_is_tried_all_the_same(few: int) -> None:
    """But for 8, as nobody waits then. Models serve two kinds, or do not differ."""
    side = np.repeat([0, 1], [few, 60 - few])
    for kind, end in ((side, (30, 1, "confirmed")), (0 * side, (40, 0, "rejoined"))):
        _, states = play(40, Levels(kind, 1.0 + side), min_size=8)
        assert told(states, *TRIALS) == [(20, 0, "groups"), *([] if few == 8 else [end])]


def test_more_gain_is_asked_for_where_losses_are_private() -> None:
    """Though enough are on either side, 40 and 20."""
    for engine, gain in ((Private(), 16), (Heard(), 4)):
        engine.level = 1.0 + (np.arange(62) >= 40)
        assert wanted(engine) == ("groups", gain)


@by_pairs_and_by_client
def test_more_gain_is_asked_for_after_each_division_that_was_undone(settings: dict[str, Any]) -> None:
    """12 more, window by window until the next division, in rounds 20, 90 and 160; who is parted then begins without that."""
    _, states = play(160, Kinds(np.zeros(60)), **settings, **FORCED)
    asked = [(t, v.reason, v.wanted) for t, s in enumerate(states, 1) for v in s.verdicts if v.reason != "rejoined"]
    assert asked == [
        *((10, "first cut", -1000), (20, "groups", -1000)),
        *((80, "first cut", -988), (90, "groups", -988)),
        *((150, "first cut", -976), (160, "groups", -976)),
    ]
    undone = [[c.undone for c in states[t - 1].clusters] for t in (19, 20, 39, 40, 70, 89, 90, 109, 110, 159, 160)]
    assert undone == [[0], [0, 0], [0, 0], [1], [1], [1], [0, 0], [0, 0], [2], [2], [0, 0]]
    assert [[s.undone for s in states[t - 1].splits] for t in (20, 40, 90, 110, 160)] == [[0], [], [1], [], [2]]


def test_where_there_is_much_doubt_nothing_is_tried_twice() -> None:
    """Models that never differ; of two levels of losses the gain is some 600."""
    _, states = play(120, Later(1000), doubt=1000.0)
    tried = [(10, 0, "first cut"), (20, 0, "groups"), (40, 0, "rejoined"), (80, 0, "first cut")]
    assert told(states) == [*tried, *((t, 0, "no groups") for t in (90, 100, 110, 120))]
    assert states[-1].verdicts[0].wanted == 1004


def test_children_of_a_cluster_that_was_put_together_are_asked_for_no_more_gain() -> None:
    """Two kinds of 30, either with two levels of losses; in the round of the second verdict a window of theirs is over too."""
    engine = Later(2)
    engine.level = np.tile([1.0, 1.3], 30) + 4 * KIND[:60]
    _, states = play(130, engine, min_size=15)
    assert told(states, *TRIALS)[:4] == [(20, 0, "groups"), (40, 0, "rejoined"), (90, 0, "groups"), (100, 3, "confirmed")]
    asked = [(v.cluster, v.wanted) for s in states[99:] for v in s.verdicts if v.wanted is not None]
    assert set(asked) == {(3, 4), (4, 4)}


@pytest.mark.parametrize("doubt", [-1.0, -1e-9, float("-inf"), float("nan"), float("inf")])
def test_doubt_is_finite_and_not_negative(doubt: float) -> None:
    with pytest.raises(InputError, match=rf"doubt finite and >= 0, gain a number; got .*, {doubt} and 4\.0$"):
        FedGWC(doubt=doubt)
    assert FedGWC(doubt=0.0).doubt == 0


def test_clients_that_drift_are_divided_whatever_the_gain() -> None:
    """In the third window, and nobody tries that."""
    _, states = play(30, Drifting(), gain=1e6)
    assert told(states) == [(10, 0, "first cut"), (20, 0, "no groups"), (30, 0, "drift")]
    assert not any(waiting_in(states[-1]))


# Recordings


def recorded() -> Trace:
    engine = Heard()
    everybody, which = np.arange(60), np.zeros(60, np.int64)
    losses = [engine.train(everybody, torch.zeros(1, 1), which, t).losses.numpy() for t in range(40)]
    return Trace(np.tile(everybody, (40, 1)), np.stack(losses), 60)


def test_how_p_converges_is_told_until_somebody_waits() -> None:
    """They are divided in round 20 of 40."""
    for second_look, clusters in ((True, [0]), (False, [0, 1, 2])):
        lines = mse_by_cluster(recorded(), play(0, second_look=second_look)[0], 1)
        assert sorted(lines) == clusters
        assert (lines[0][0] < 20).all()


def test_a_replay_asks_nobody() -> None:
    trace = recorded()

    def seen(second_look: bool) -> list[bytes]:
        states: list[bytes] = []
        algorithm, _ = play(0, second_look=second_look, doubt=0)
        last = replay(trace, algorithm, watch=lambda _, s: states.append(pack(s)))
        assert members(last) == [list(range(29)), list(range(29, 60))]
        return states

    assert seen(True) == seen(False)


class Kept:
    """An engine that keeps what clients have said."""

    def __init__(self, engine: Kinds) -> None:
        self.engine = engine
        self.said: list[Updates] = []

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        self.said.append(self.engine.train(clients, models, which, seed))
        return self.said[-1]

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        return self.engine.evaluate(clients, models, which, split)

    def trace(self, n_rounds: int) -> Trace:
        ids, losses = zip(*((said.clients, said.losses.numpy()) for said in self.said[:n_rounds]), strict=True)
        return Trace(np.stack(ids), np.stack(losses), 60)


@by_pairs_and_by_client
@pytest.mark.parametrize(
    ("few", "gain", "wanted"), [(20, 4.0, 4), (14, 4.0, 16), (8, 4.0, 16), (20, 1e6, 1e6), (14, 1e6, 1e6 + 12)]
)
def test_a_replay_asks_for_as_much_gain_as_the_run(few: int, gain: float, wanted: float, settings: dict[str, Any]) -> None:
    """So many of 60 are on one side, of whom 14 and 8 are too few to try. All is the same up to the first division."""
    kind = np.repeat([0, 1], [few, 60 - few])
    engine = Kept(Levels(kind, 1.0 + kind))
    algorithm = FedGWC(rate=1.0, gain=gain, doubt=12.0, **settings)
    states = [s for _, s in rounds(algorithm, engine, torch.zeros(1, dtype=torch.float64), 60, 40, seed=1)]
    until = next((t for t, s in enumerate(states, 1) if s.splits), 40)
    assert until == (20 if gain == 4 else 40)
    again: list[FedGWCState] = []
    replay(engine.trace(until), algorithm, seed=1, watch=lambda _, s: again.append(s))
    assert [s.verdicts for s in again] == [s.verdicts for s in states[:until]]
    assert {v.wanted for s in again for v in s.verdicts} == {wanted}
    assert waiting_in(again[-1]) == [None] * len(again[-1].clusters)
