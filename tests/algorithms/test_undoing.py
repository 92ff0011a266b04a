"""A division is undone if no side is served better by a model of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fake_engine import FakeEngine, Question, rough
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from trials import (
    AGAIN,
    ASK,
    FIRST,
    LAST,
    SIDE,
    TIMES,
    WAIT,
    WAITING,
    but,
    divided,
    halves,
    ids,
    look,
    members,
    no_more,
    sound,
    two_trials,
    until_nobody_waits,
    waiting_in,
)

from fedgwc.algorithms.auto.beginnings import children
from fedgwc.algorithms.auto.state import FedGWCState, Verdict
from fedgwc.algorithms.auto.verdicts import Waiting
from fedgwc.core.types import TooFewReplies
from fedgwc.io.state_file import pack

ONE_KIND = np.zeros(50, np.int64)  # whom a model at 0 serves, wherever they are


def test_sides_that_no_model_of_their_own_serves_better_are_put_together_again() -> None:
    """They are asked twice, and then which model to go on with: that at 0 serves them, not the one at 1, nor the mean, 0.5."""
    state, engine = divided(), FakeEngine(ONE_KIND)
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
    after, [verdict] = look(ASK, divided(), FakeEngine(1 - SIDE), LAST)
    assert members(after) == [list(range(50))]
    assert (verdict.reason, verdict.clear) == ("rejoined", 0)


@pytest.mark.parametrize(("size", "mean"), [(15, 0.7), (20, 0.6), (35, 0.3)])
def test_the_model_is_the_mean_by_members(size: int, mean: float) -> None:
    """So many are on the side of 0 and the others on that of 1; what moves the larger side's model goes on."""
    side = np.repeat([0, 1], [size, 50 - size])
    state = divided(Waiting(*[ids(0, 1, 2, 47, 48, 49)] * 2), side)
    moving = [replace(c.server, velocity=torch.full((1,), float(len(c.members)))) for c in state.clusters]
    clusters = [replace(c, server=server) for c, server in zip(state.clusters, moving, strict=True)]
    [whole] = look(ASK, replace(state, clusters=tuple(clusters)), FakeEngine(np.full(50, mean)), 400)[0].clusters
    assert whole.server.theta.dtype == torch.float64
    assert whole.server.theta.tolist() == pytest.approx([mean])
    assert whole.server.velocity is not None
    assert whole.server.velocity.item() == max(size, 50 - size)


def ruined(question: Question) -> NDArray[Any]:
    """Some of a model at 1 is no number, and two clients of ten say that all of it is best."""
    q = question
    if q.n_models < 3:
        return q.loss
    return np.where(np.isin(q.clients, WAITING[:2]), -q.at, np.where(q.at > 0, np.nan, 1.0))


def test_a_model_that_somebody_has_ruined_is_left_out_of_the_mean() -> None:
    [whole] = look(ASK, divided(), FakeEngine(ONE_KIND, answer=ruined), LAST)[0].clusters
    assert whole.server.theta.tolist() == [0]


def test_the_model_is_the_mean_where_too_few_say_which_is_best() -> None:
    """Everybody is silent at the last question."""

    def tired(question: Question) -> NDArray[Any]:
        if question.n_models == 3:
            raise TooFewReplies
        return question.loss

    [whole] = look(ASK, divided(), FakeEngine(ONE_KIND, answer=tired), LAST)[0].clusters
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
    sides = children(algorithm, was, SIDE, {2: 0.75}, 5, 0, WAIT)
    state = FedGWCState(tuple(sides), (no_more(was, SIDE),), np.zeros(50, np.int64), 7)
    [whole] = look(algorithm, state, FakeEngine(ONE_KIND), LAST)[0].clusters
    assert pack(whole) == pack(replace(was, late=np.full(50, 3), attempts=0, undone=4))


@pytest.mark.parametrize(("clear", "stands"), [(2.5, True), (2.02, True), (1.98, False), (0.1, False)])
def test_less_than_two_deviations_are_too_few(clear: float, stands: bool) -> None:
    """The sides are 2 apart."""
    for number in (LAST, 2 * LAST):
        after, [verdict] = look(ASK, divided(), FakeEngine(but(), answer=rough(2 / clear)), number)
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
        return look(ASK, state, FakeEngine(but(), answer=rough(2 / clear)) if clear else FakeEngine(ONE_KIND), TIMES * trained)

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
    assert until_nobody_waits(replace(ASK, rate=0.1), divided(), FakeEngine(ONE_KIND))[0] == [67, 134, 134]


@pytest.mark.parametrize("worst", [0, 1])
@pytest.mark.parametrize("liar", [20, 22, 45, 48, 49], ids=["witness", "another", "third", "fourth", "unsure"])
def test_one_who_lies_undoes_nothing_and_moves_only_itself(liar: int, worst: int) -> None:
    """24 is misplaced, and finds its own. The liar says that one of the two models is worse than anything."""

    def lying(question: Question) -> NDArray[Any]:
        lies = (question.clients == liar) & (question.which == worst)
        return np.where(lies, 1e9, rough(0.2)(question))

    for number in (FIRST, 2 * FIRST, 3 * FIRST, LAST):
        after, verdicts = look(ASK, divided(), FakeEngine(but(24), answer=lying), number)
        assert {v.reason for v in verdicts} <= {"moved"}
        assert len(after.clusters) == 2
    assert verdicts
    found = np.where(np.isin(np.arange(50), members(after)[1]), 1, 0)
    assert np.delete(found, liar).tolist() == np.delete(but(24), liar).tolist()


def test_many_who_are_misplaced_undo_nothing() -> None:
    """Six of eleven who are unsure on one side."""
    waiting = Waiting(np.concatenate([np.arange(10, 25), np.arange(45, 50)]), WAIT.witnesses)
    after, verdicts = look(ASK, divided(waiting), FakeEngine(but(*range(10, 16)), answer=rough(0.5)), LAST)
    assert members(after) == halves(*range(10, 16))
    [verdict] = verdicts
    assert (verdict.reason, verdict.sizes) == ("moved", (19, 6))
    assert verdict.clear == pytest.approx(2 / 0.5, rel=0.1)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (FakeEngine(ONE_KIND), "a model of its own served neither side better (0.0 deviations between the"),
        (
            FakeEngine(but(), answer=rough(0.8)),
            "its clients and those of cluster 2 are served by different models (2.5 deviations between the",
        ),
    ],
    ids=["rejoined", "confirmed"],
)
def test_a_verdict_says_what_came_of_a_trial(engine: FakeEngine, words: str) -> None:
    after, verdicts = look(ASK, divided(), engine, LAST)
    [row] = ASK.verdicts(replace(after, verdicts=tuple(verdicts)))
    assert (row["divides"], row["why"]) == (False, f"{words} two)")


@pytest.mark.parametrize("where", ["left", "right", "both"])
def test_of_two_trials_each_has_an_end_of_its_own(where: str) -> None:
    """Who was divided before stays so: cluster 1 or 2 of 0 is whole again."""
    kind = np.concatenate([0 * AGAIN if where != "right" else AGAIN, 0 * AGAIN if where != "left" else AGAIN])
    state = two_trials()
    after, verdicts = look(replace(ASK, rate=1.0), state, FakeEngine(kind), 40)
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


@given(st.integers(9, 41), st.integers(0, 10**6), st.floats(0, 4), st.sampled_from([FIRST, 2 * FIRST, LAST, 2 * LAST]))
def test_whoever_is_where_nobody_is_lost(size: int, seed: int, by: float, number: int) -> None:
    rng = np.random.default_rng(seed)
    side = rng.permutation(np.repeat([0, 1], [size, 50 - size]))
    some = np.stack([rng.choice(np.flatnonzero(side == y), 5, replace=False) for y in (0, 1)])
    state = divided(Waiting(np.sort(some.ravel()), np.sort(some[:, :3].ravel())), side)
    after, verdicts = look(ASK, state, FakeEngine(rng.integers(0, 2, 50), answer=rough(by)), number)
    assert sound(ASK, after)
    assert {v.reason for v in verdicts} <= {"moved", "confirmed", "rejoined"}
    assert ("rejoined" in {v.reason for v in verdicts}) == (len(after.clusters) == 1)
    assert any(waiting_in(after)) == (not verdicts)
