"""Windows in which some members are late: they have sat out, and are catching up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fake_engine import FakeEngine
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from trials import ASK, SIDE, WAITING, but, divided, ids, known, look, squared, waiting_in

from fedgwc.algorithms.auto.beginnings import children
from fedgwc.algorithms.auto.learning import learnt
from fedgwc.algorithms.auto.state import Cluster, copied
from fedgwc.algorithms.auto.verdicts import NO_ONE_WAITS
from fedgwc.algorithms.auto.windows import counted_down, with_window
from fedgwc.algorithms.perception import perception_distances
from fedgwc.core.types import Ids, Rng, Updates
from fedgwc.runs.loop import rounds


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
    after, _ = look(ASK, state, FakeEngine(but()))
    for c in after.clusters:
        assert c.level is not None
        assert np.isnan(c.level).tolist() == np.isin(c.members, WAITING).tolist()


def test_who_is_late_is_so_for_three_windows() -> None:
    """That in which it waited and the next two, all of 10 rounds."""
    after = [counted_down(late) for late in (ids(0, 3, 2, 1), ids(0, 1), ids(0, 0), None)]
    assert [late is not None and late.tolist() for late in after] == [[0, 2, 1, 0], False, False, False]
    seen: list[tuple[int, Any, Any]] = [(0, None, None)]
    for t, s in rounds(replace(ASK, rate=1.0), FakeEngine(SIDE), torch.empty(0), 50, 35, state=divided()):
        [c] = [c for c in s.clusters if 0 in c.members]
        now = t, waiting_in(s)[0], None if c.late is None else c.late[18:].tolist()
        seen += [now] if now[1:] != seen[-1][1:] else []
    late = [[0, 0, n, n, n, n, n] for n in (2, 1)]
    assert seen[1:] == [(1, WAITING[:5].tolist(), None), (10, None, late[0]), (20, None, late[1]), (30, None, None)]


def test_children_are_as_late_as_they_were() -> None:
    whole = replace(divided(NO_ONE_WAITS).clusters[0], late=np.repeat([0, 2, 1], [5, 10, 10]))
    left, right = children(ASK, whole, np.repeat([0, 1], [10, 15]), {}, 3, 0)
    assert left.late is not None
    assert right.late is not None
    assert (left.late.tolist(), right.late.tolist()) == ([0] * 5 + [1] * 5, [1] * 5 + [0] * 10)
    assert (left.waiting, right.waiting) == (None, None)
