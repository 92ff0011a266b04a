"""A division is on trial: some clients wait, and say later whose model serves them better."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fake_engine import FakeEngine, Question, rough, too_few_reply
from numpy.typing import NDArray
from torch import Tensor
from trials import (
    AGAIN,
    ASK,
    CLEARLY,
    FIRST,
    LAST,
    SIDE,
    TEN,
    WAITING,
    but,
    divided,
    halves,
    ids,
    known,
    look,
    members,
    nobody_waits,
    two_trials,
    until_nobody_waits,
    waiting_in,
)

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.auto.beginnings import children
from fedgwc.algorithms.auto.state import Verdict
from fedgwc.algorithms.auto.verdicts import Waiting
from fedgwc.core.types import Rng, Updates
from fedgwc.io.state_file import pack
from fedgwc.runs.loop import rounds


def lost(question: Question) -> NDArray[Any]:
    """The first model is of no use to 24."""
    return np.where((question.clients == 24) & (question.which == 0), np.nan, question.loss)


def slowly(updates: Updates, start: Tensor) -> Updates:
    """A round moves a model by an eightieth towards its clients: from halfway it takes 40 rounds."""
    return replace(updates, models=start + (updates.models - 0.5) / 40)


def test_who_waits_and_is_misplaced_changes_sides() -> None:
    state, engine = divided(), FakeEngine(but(24, 49))
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
    after, verdicts = look(ASK, divided(), FakeEngine(but(*misplaced)))
    n = len(misplaced)
    assert members(after) == halves(*misplaced)
    assert verdicts == [Verdict(1, 25, "moved", sizes=(25 - n, n), to=2, clear=CLEARLY)]
    [row] = ASK.verdicts(replace(after, verdicts=tuple(verdicts)))
    assert (row["divides"], row["to"], row["why"]) == (False, 2, f"the model of cluster 2 {words} there")


CONFIRMED = Verdict(1, 25, "confirmed", sizes=(25,), to=2, clear=CLEARLY)


def test_who_is_where_it_belongs_stays() -> None:
    state = divided()
    after, verdicts = look(ASK, state, FakeEngine(but(0, 30)))  # who did not wait is not asked
    assert members(after) == members(state)
    assert verdicts == [CONFIRMED]
    nobody_waits(after)
    for c, was in zip(after.clusters, state.clusters, strict=True):
        assert (c.ripe, c.P is was.P, c.cut is was.cut) == (was.ripe, True, True)


def test_no_side_becomes_smaller_than_the_smallest_group() -> None:
    """One may go if another comes; else nobody does, and the division stands."""
    guarded = replace(ASK, min_size=25)
    after, verdicts = look(guarded, divided(), FakeEngine(but(24)))
    assert (members(after), verdicts) == (halves(), [CONFIRMED])
    assert waiting_in(after) == [None, None]
    after, verdicts = look(guarded, divided(), FakeEngine(but(24, 49)))
    assert members(after) == halves(24, 49)
    assert len(verdicts) == 2


@pytest.mark.parametrize(
    "engine",
    [
        FakeEngine(but(24, 49), answer=too_few_reply),
        *(FakeEngine(but(24, 49), silent=some) for some in (WAITING.tolist(), [20, 21], [45, 46])),
    ],
    ids=["too few replies", "nobody", "two witnesses of the first side", "two of the second"],
)
def test_where_too_few_answer_they_go_on_waiting_but_not_for_ever(engine: FakeEngine) -> None:
    state = divided()
    after, verdicts = look(ASK, state, engine)
    assert all(c is was for c, was in zip(after.clusters, state.clusters, strict=True))
    assert verdicts == []
    after, verdicts = look(ASK, state, engine, LAST)
    assert (members(after), verdicts) == (halves(), [])  # nothing is undone, and nothing is said to be right
    assert after.splits == state.splits
    nobody_waits(after)
    assert engine.asked == [WAITING.tolist()] * 2


@pytest.mark.parametrize(
    "engine", [FakeEngine(but(24, 49), silent=[24]), FakeEngine(but(24, 49), skips=(24, 1)), FakeEngine(but(24, 49), answer=lost)]
)
def test_who_does_not_answer_stays(engine: FakeEngine) -> None:
    after, _ = look(ASK, divided(), engine)
    assert members(after) == halves(49)
    nobody_waits(after)


@pytest.mark.parametrize(("rate", "when"), [(1.0, [10, 20, 30, 40]), (0.5, [20, 40, 60, 80]), (0.1, [67, 134, 200, 267])])
def test_who_waits_is_asked_whenever_the_others_have_trained_ten_times_more(rate: float, when: list[int]) -> None:
    """All of 20, 10 of them or 3."""
    assert until_nobody_waits(replace(ASK, rate=rate), divided(), FakeEngine(SIDE, answer=too_few_reply))[0] == when


@pytest.mark.parametrize(("by", "times"), [(0.0, 1), (0.2, 1), (0.39, 1), (0.41, 4), (0.8, 4)])
def test_who_waits_is_asked_again_until_it_is_clear_who_belongs_where(by: float, times: int) -> None:
    """The sides are 2 apart, with 0.4 by 5 deviations. At last it is decided anyway."""
    when, after = until_nobody_waits(ASK, divided(), FakeEngine(but(24), answer=rough(by)))
    assert when == [50, 100, 150, 200][:times]
    assert members(after) == halves(24)
    nobody_waits(after)


def test_who_may_well_be_where_it_belongs_stays_in_the_end() -> None:
    """24 loses 0.2 more under the first model; on its side 1 less is usual, and on the other one 1 more."""
    kind = np.where(np.arange(50) == 24, 0.6, but())
    when, after = until_nobody_waits(ASK, divided(), FakeEngine(kind, answer=rough(0.5)))
    assert (len(when), members(after)) == (4, halves())
    assert members(look(ASK, divided(), FakeEngine(kind, answer=rough(0.1)))[0]) == halves(24)


def test_clients_wait_until_models_have_parted() -> None:
    """The sides are 0.5 apart after 10 rounds, 1 after 20 and 1.5 after 30, and 5 deviations are 1.25."""
    state = divided()
    start = replace(state, clusters=tuple(replace(c, server=Server(torch.full((1,), 0.5))) for c in state.clusters))
    engine = FakeEngine(but(24, 49), answer=rough(0.25), update=slowly)
    states = [s for _, s in rounds(replace(ASK, rate=1.0), engine, torch.empty(0), 50, 30, state=start)]
    assert len(engine.asked) == 3
    assert [waiting_in(s) != [None, None] for s in states] == [True] * 29 + [False]
    assert (members(states[28]), members(states[29])) == (halves(), halves(24, 49))
    assert [c.server.theta.item() for c in states[29].clusters] == pytest.approx([0.125, 0.875])


def test_who_answers_for_another_is_not_heard() -> None:
    """0 would be served better elsewhere, but has trained its side's model since."""
    after, _ = look(ASK, divided(), FakeEngine(but(0, 24, 49), stand_ins={24: 0}))
    assert members(after) == halves(49)


@pytest.mark.parametrize("number", [1, FIRST - 1, FIRST + 1, 2 * FIRST - 1, LAST - 1])
def test_nobody_is_asked_at_other_times(number: int) -> None:
    state, engine = divided(), FakeEngine(but(24, 49))
    after, verdicts = look(ASK, state, engine, number)
    assert all(c is was for c, was in zip(after.clusters, state.clusters, strict=True))
    assert (verdicts, engine.asked) == ([], [])


def test_who_was_late_before_is_so_still() -> None:
    state = divided()
    before = np.where(np.arange(25) == 0, 1, 0)
    state = replace(state, clusters=(replace(state.clusters[0], late=before), state.clusters[1]))
    late = look(ASK, state, FakeEngine(but(24, 49)))[0].clusters[0].late
    assert late is not None
    assert late[0] == 1


def test_in_a_cluster_too_small_to_be_divided_nobody_is_late() -> None:
    """No window of theirs is looked at, so none would end it."""
    after, _ = look(replace(ASK, min_size=13), divided(), FakeEngine(but(24, 49)))
    assert [c.late for c in after.clusters] == [None, None]


def test_nobody_waits_for_ever() -> None:
    """Whoever never answers."""
    *_, (_, last) = rounds(
        ASK, FakeEngine(SIDE, silent=range(20), answer=too_few_reply), torch.empty(0), 50, LAST, state=divided()
    )
    assert waiting_in(last) == [None, None]


def test_clients_move_between_the_sides_of_their_own_division() -> None:
    """One side is younger."""
    mixed = two_trials()
    mixed = replace(mixed, clusters=(*mixed.clusters[:3], replace(mixed.clusters[3], born=1)))
    kind = np.tile(AGAIN, 2)
    kind[[12, 24, 37, 49]] ^= 1
    engine = FakeEngine(kind)
    after, verdicts = look(replace(ASK, rate=1.0), mixed, engine, 10)
    assert engine.asked == [TEN.tolist()]
    assert members(after) == [[*range(12), 24], list(range(25, 38)), list(range(12, 24)), list(range(38, 50))]
    assert [(v.cluster, v.to) for v in verdicts] == [(3, 4), (4, 3)]
    assert [w is None for w in waiting_in(after)] == [True, False, True, False]


# Rounds


def test_a_round_in_which_clients_move_leaves_its_state_alone_and_tells() -> None:
    state = divided()
    before = pack(state)
    after = ASK.round(state, FakeEngine(but(24, 49)), Rng(0, FIRST))
    assert pack(state) == before
    assert members(after) == halves(24, 49)
    assert [v.reason for v in after.verdicts[:2]] == ["moved", "moved"]


def test_who_waits_is_not_sampled() -> None:
    state = divided()
    engine = FakeEngine(SIDE)
    after = replace(ASK, rate=1.0).round(state, engine, Rng(0, 1))
    assert engine.trained == [np.setdiff1d(np.arange(50), WAITING).tolist()]
    assert waiting_in(after) == [WAITING[:5].tolist(), WAITING[5:].tolist()]
    some = replace(ASK, rate=0.4)  # of the 20 who do not wait
    drawn = [some._sample(state.clusters[0], state, Rng(0, t)) for t in range(100)]
    assert {len(clients) for clients in drawn} == {8}
    assert np.unique(np.concatenate(drawn)).tolist() == list(range(20))


def test_witnesses_are_known_by_their_numbers() -> None:
    """The second and the fourth of 0, 2, 4, 6 and 8 wait, and this one is a witness."""
    left, right = children(ASK, known(), ids(0, 0, 1, 1, 1), {}, 1, 0, Waiting(ids(1, 3), ids(3)))
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
