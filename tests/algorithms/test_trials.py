"""Divisions on trial in runs from the beginning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fake_engine import FakeEngine, alike_until, drifting, private
from fedgwc.flower.joining import grow
from trials import FORCED, KIND, ODD, TRIALS, by_pairs_and_by_client, heard, ids, members, play, sound, told, waiting_in

from fedgwc.algorithms.auto.algorithm import FedGWC
from fedgwc.algorithms.auto.state import FedGWCState
from fedgwc.io.state_file import pack, unpack
from fedgwc.runs.loop import rounds

FOUND = np.where(np.arange(62) == ODD, 1, KIND)


def in_the_middle_wait(state: FedGWCState) -> None:
    """And seven witnesses of either side."""
    for c, unsure in zip(state.clusters, ([26, 27, 28], [ODD, 30, 31, 32]), strict=True):
        assert c.waiting is not None
        assert np.isin(unsure, c.waiting).all()
        assert np.isin(c.waiting, c.members).all()
        assert c.witnesses is not None
        assert sorted([*unsure, *c.witnesses.tolist()]) == c.waiting.tolist()
        assert len(c.witnesses) == 7


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


def test_nobody_waits_whose_losses_are_private() -> None:
    """They do not tell by how much one model serves them better. Those between the two kinds have the largest rewards."""
    _, states = play(20, heard(update=private), min_size=3)
    assert [v.reason for s in states for v in s.verdicts if v.divides] == ["groups"]
    assert waiting_in(states[-1]) == [None, None]


def test_nobody_waits_where_clients_are_divided_because_they_drift() -> None:
    """In the third window; if groups are clear, they are divided in the second, and some try that, drift or no drift."""
    groups = 20, 0, "groups"
    for settings, verdict in (({"gain": 1e6}, (30, 0, "drift")), ({}, groups), ({"drift": 9.0}, groups)):
        _, states = play(verdict[0], heard(update=drifting), **settings)
        assert told(states, "drift", "groups") == [verdict]
        assert [w is not None for w in waiting_in(states[-1])] == [verdict == groups] * 2


@pytest.mark.parametrize("who", ["waiting", "witnesses", "late"])
def test_a_state_in_which_somebody_waits_or_is_late_is_saved_and_read(who: str) -> None:
    algorithm, states = play(66)
    at = next(t for t, s in enumerate(states, 1) if any(getattr(c, who) is not None for c in s.clusters))
    again = unpack(pack(states[at - 1]), FedGWCState)
    for a, b in zip(again.clusters, states[at - 1].clusters, strict=True):
        np.testing.assert_array_equal(getattr(a, who), getattr(b, who))
    *_, (_, last) = rounds(algorithm, heard(), torch.empty(0), 0, 66, seed=1, state=again, done=at)
    assert pack(last) == pack(states[-1])


def test_a_federation_grows_while_somebody_waits() -> None:
    """By two who are of the second kind."""
    algorithm, states = play(25)
    wider = grow(states[-1], ids(1, 1))
    assert members(wider) == [list(range(29)), list(range(29, 62))]
    assert waiting_in(wider) == waiting_in(states[-1])
    in_the_middle_wait(wider)
    found = [s for _, s in rounds(algorithm, heard(), torch.empty(0), 0, 65, seed=1, state=wider, done=25)]
    assert algorithm.clustering(found[-1]).labels.tolist() == KIND.tolist()
    late = next(s for s in found if any(c.late is not None for c in s.clusters))
    wider = grow(late, ids(0))
    assert wider.clusters[0].late.tolist() == [*late.clusters[0].late.tolist(), 0]


# Confirmed or undone


def nodes(algorithm: FedGWC, state: FedGWCState) -> list[tuple[int, int | None, int, int | None]]:
    return [(row["id"], row["parent"], row["born"], row["ended"]) for row in algorithm.tree(state)]


@by_pairs_and_by_client
def test_true_groups_are_confirmed(settings: dict[str, Any]) -> None:
    """Windows of 10 rounds; those who wait are asked after as many."""
    algorithm, states = play(65, FakeEngine(KIND, level=1.0 + KIND), **settings)
    assert told(states, *TRIALS) == [(20, 0, "groups"), (30, 1, "confirmed")]
    assert algorithm.clustering(states[-1]).labels.tolist() == KIND[:60].tolist()
    assert all(sound(algorithm, s) for s in states)


@by_pairs_and_by_client
def test_a_federation_without_groups_that_was_divided_is_put_together_again(settings: dict[str, Any]) -> None:
    """Asked twice in 20 rounds, and then for the best model. Three windows are skipped, the next finds a first cut, and so on."""
    engine = FakeEngine(np.zeros(60))
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
    algorithm, states = play(105, FakeEngine(KIND, level=1.0 + KIND, answer=alike_until(2)), **settings)
    assert told(states, *TRIALS) == [(20, 0, "groups"), (40, 0, "rejoined"), (90, 0, "groups"), (100, 3, "confirmed")]
    assert algorithm.clustering(states[-1]).labels.tolist() == KIND[:60].tolist()
    assert nodes(algorithm, states[-1]) == [(0, None, 0, 90), (3, 0, 90, None), (4, 0, 90, None)]


@by_pairs_and_by_client
def test_a_division_within_a_confirmed_one_is_undone_by_itself(settings: dict[str, Any]) -> None:
    """Three levels of losses, and two kinds: a model of its own serves nobody of the last 60 better.

    Seven of these wait, so that half of the pairs have met by the round in which they come back, and a window is over.
    """
    engine = FakeEngine(np.repeat([0, 1], [30, 60]), level=np.repeat([1.0, 5.0, 5.5], 30))
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


def fading() -> FakeEngine:
    """Two kinds that lose alike after 10 rounds, and that no model serves better."""
    return FakeEngine(KIND, level=lambda t: 1.0 + KIND if t < 10 else np.ones(62), answer=alike_until(1000))


@by_pairs_and_by_client
def test_that_clients_differed_once_is_remembered_but_not_by_the_sides_of_a_division(settings: dict[str, Any]) -> None:
    """In the first window. The second divides them for that; when that is undone, it still holds."""
    _, states = play(80, fading(), **settings)
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
    _, states = play(20, fading())
    whole, parted = (unpack(pack(states[t - 1]), FedGWCState) for t in (10, 20))
    assert [row.differed for row in (*whole.clusters, *whole.verdicts)] == [True, False]
    assert [row.differed for row in (*parted.splits, *parted.verdicts, *parted.clusters)] == [True, True, False, False]


def test_what_is_recorded_of_a_division_that_is_undone() -> None:
    """The division when it is made, nothing when it is undone, and a tree in which it never was."""
    algorithm, states = play(90, FakeEngine(np.zeros(60)), **FORCED)
    assert {t: list(algorithm.events(s)) for t, s in enumerate(states, 1) if algorithm.events(s)} == {20: ["0"], 90: ["0"]}
    assert [list(algorithm.matrices(states[t - 1])) for t in (39, 40)] == [["end-1", "end-2"], ["end-0"]]
    [root] = algorithm.tree(states[39])
    assert root == {"id": 0, "parent": None, "born": 0, "ended": None, "members": list(range(60)), "scores": {}}
    assert algorithm.clustering(states[39]).labels.tolist() == [0] * 60
    assert algorithm.sitting_out(states[39]).tolist() == []


@by_pairs_and_by_client
def test_whoever_saves_and_resumes_during_a_trial_or_after_it_changes_nothing(settings: dict[str, Any]) -> None:
    """Before they are asked, when they have been, when all is undone, and in the windows that are skipped."""
    algorithm, states = play(102, FakeEngine(np.zeros(60)), **settings, **FORCED)
    packed = [pack(s) for s in states]
    for done in (20, 25, 30, 39, 40, 41, 55, 75, 90, 101):
        again = unpack(packed[done - 1], FedGWCState)
        assert pack(again) == packed[done - 1]
        later = rounds(
            algorithm, FakeEngine(np.zeros(60)), torch.empty(0), 0, min(done + 45, 102), seed=1, state=again, done=done
        )
        assert all(pack(s) == packed[t - 1] for t, s in later), done


def test_how_often_a_cluster_was_put_together_is_saved_and_read() -> None:
    """Once before the second trial, which is undone too."""
    _, states = play(110, FakeEngine(np.zeros(60)), **FORCED)
    trial, whole = (unpack(pack(states[t - 1]), FedGWCState) for t in (91, 110))
    assert [(s.id, s.undone) for s in trial.splits] == [(0, 1)]
    assert [(c.id, c.undone) for c in (*trial.clusters, *whole.clusters)] == [(3, 0), (4, 0), (0, 2)]


@by_pairs_and_by_client
def test_a_window_in_which_everybody_is_late_is_skipped(settings: dict[str, Any]) -> None:
    """Three are: nothing is told of them, and nothing of them is known later."""
    _, states = play(80, FakeEngine(np.zeros(60)), **settings, **FORCED)
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
    states = [s for _, s in rounds(algorithm, FakeEngine(KIND, level=1.0 + KIND), torch.empty(0), 0, 40, state=start)]
    assert [states[t - 1].clusters[0].differed for t in (10, 20, 30, 39, 40)] == [differed] * 4 + [True]


@by_pairs_and_by_client
def test_who_joined_during_a_trial_is_in_the_cluster_that_is_put_together(settings: dict[str, Any]) -> None:
    engine = FakeEngine(np.zeros(62))
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
    engine = FakeEngine(np.zeros(60), level=1 + 0.3 * np.random.default_rng(0).standard_normal(60))
    state = algorithm.init(torch.zeros(1, dtype=torch.float64), 40)
    state = grow(replace(state, clusters=(replace(state.clusters[0], late=np.full(40, 3)),)), np.zeros(20, np.int64))
    states = [s for _, s in rounds(algorithm, engine, torch.empty(0), 0, 40, state=state)]
    assert told(states) == [(40, 0, "first cut")]
    assert states[9].clusters[0].late is not None
    assert states[9].clusters[0].late.tolist() == [2] * 40 + [0] * 20
