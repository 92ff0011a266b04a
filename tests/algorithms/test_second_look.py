"""Clients near a cut wait, and say later whose model serves them better."""

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
from fedgwc.algorithms.fedgwc_state import Cluster, FedGWCState, Verdict
from fedgwc.algorithms.membership import with_members
from fedgwc.algorithms.second_look import better_served, looked_again, near
from fedgwc.algorithms.windows import one_less, without_late
from fedgwc.codec import pack, unpack
from fedgwc.core import Ids, Rng, Scores, Split, TooFewReplies, Updates
from fedgwc.cuts import Cut, best_cut
from fedgwc.flower.growing import grow
from fedgwc.replay import Trace, replay
from fedgwc.runner import rounds

ASK = FedGWC(second_look=True)


def ids(*clients: int) -> Ids:
    return np.array(clients, np.int64)


# Who waits


def waiting(behind: list[float], ahead: list[float]) -> list[int]:
    """Of clients at these places on a line, those behind the cut first."""
    labels = np.repeat([0, 1], [len(behind), len(ahead)])
    return list(near(Cut(labels, 0.5, np.ones(1), 20.0, np.array([*behind, *ahead]))))


def test_who_stands_nearer_to_the_middle_than_to_its_own_side_waits() -> None:
    """Medians at -1 and 1. Of 20 on either side at most four wait."""
    behind, ahead = [-1.0] * 15 + [-0.4, -0.3, -0.2, -0.1, -0.35], [1.0] * 16 + [0.4, 0.6, 0.45, 0.55]
    assert waiting(behind, ahead) == [16, 17, 18, 19, 36, 38]


def test_nobody_waits_where_the_sides_are_far_apart() -> None:
    assert waiting([-1.0] * 15 + [-0.5] * 5, [1.0] * 15 + [0.5] * 5) == []
    assert waiting([-1.0] * 15 + [-0.49] * 5, [1.0] * 15 + [0.49] * 5) == [15, 16, 17, 18, 35, 36, 37, 38]


def test_who_stands_beyond_the_middle_waits_first() -> None:
    assert waiting([-1.0] * 30 + [-0.01] * 6 + [0.9] * 6, [1.0] * 3) == [30, 31, *range(36, 42)]
    assert waiting([-1.0] * 3, [0.01] * 6 + [-0.9] * 6 + [1.0] * 30) == [3, 4, *range(9, 15)]


@pytest.mark.parametrize(("size", "most"), [(29, 0), (30, 6), (34, 6), (35, 7)])
def test_a_fifth_of_a_side_waits_at_most_and_fewer_than_six_tell_nothing(size: int, most: int) -> None:
    few = (size - 1) // 2
    assert len(waiting([-1.0] * (size - few) + [-0.1] * few, [1.0] * 3)) == most


def test_a_cut_says_where_clients_stand_on_its_line() -> None:
    points = np.random.default_rng(0).normal(np.repeat([[-2.0, 0.0], [2.0, 1.0]], 15, 0), 0.3)
    cut = best_cut(points, 3)
    assert cut is not None
    np.testing.assert_allclose(cut.on_line, points @ cut.line)
    assert cut.on_line[cut.labels == 1].mean() > cut.on_line[cut.labels == 0].mean()


# Whose model serves whom

FIVES = [0] * 5 + [1] * 5


def served(side: list[int], more: Sequence[float], shift: float = 0.0) -> list[int]:
    """Of clients that lose so much more under the model of side 0."""
    losses = 10.0 + np.stack([np.array(more), np.full(len(more), shift)], 1)
    return list(better_served(np.array(side, np.int64), losses))


def test_who_is_misplaced_moves() -> None:
    assert served(FIVES, [-2, -2, 2, -2, -2, 2, 2, 2, 2, -2]) == [0, 0, 1, 0, 0, 1, 1, 1, 1, 0]
    assert served(FIVES, [-2] * 5 + [2] * 5) == FIVES


def test_a_model_that_is_better_for_everybody_draws_nobody() -> None:
    """That of side 0, by 2 for those who belong there and by 1 for the others."""
    assert served(FIVES, [-2.1, -2, -1.9, -2, -2, -1, -1, -1.1, -0.9, -1]) == FIVES
    assert served(FIVES, [-2.1, -2, -1, -2, -2, -1, -1, -1.1, -0.9, -2]) == [0, 0, 1, 0, 0, 1, 1, 1, 1, 0]


@given(st.integers(0, 2), st.integers(0, 2), st.integers(0, 10**6), st.floats(-5, 5))
def test_how_good_a_model_is_for_everybody_does_not_count(some: int, others: int, seed: int, by: float) -> None:
    """However many of either side are misplaced, as long as most are not."""
    kind = [0] * (5 - some) + [1] * some + [0] * others + [1] * (5 - others)
    more = (6.0 * np.array(kind) - 3 + np.random.default_rng(seed).random(10)).tolist()
    assert served(FIVES, more, by) == served(FIVES, more) == kind


def test_models_that_have_not_parted_move_nobody() -> None:
    assert served(FIVES, [0.0] * 10) == FIVES
    assert served(FIVES, [2] * 5 + [-2] * 5) == FIVES  # everybody would go to the other side
    assert served([], []) == []


def test_of_one_side_alone_nobody_goes_where_it_is_served_worse() -> None:
    """The last is apart from the others, but its own model is still the better one."""
    assert served([0] * 8, [-2.1, -2, -1.9, -2, -2.05, -1.95, -2, -1.0]) == [0] * 8


def test_of_one_side_alone_those_go_whom_the_other_model_serves_better() -> None:
    assert served([0] * 8, [-2, 2, -2, -2, -2, 2, -2, -2]) == [0, 1, 0, 0, 0, 1, 0, 0]
    assert served([1] * 8, [2, -2, 2, 2, 2, -2, 2, 2]) == [1, 0, 1, 1, 1, 0, 1, 1]


def test_whose_losses_are_private_says_which_model_is_best() -> None:
    """0 for that one and 1 for the other."""
    losses = np.array([[0.0, 1]] * 4 + [[1, 0]] * 5 + [[0, 1]])
    assert better_served(np.array(FIVES), losses).tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 0]


def test_all_stay_where_it_is_not_clear_who_belongs_where() -> None:
    assert served([0, 0, 0, 1, 1], [-2, -2, 2, 2, 2]) == [0, 0, 0, 1, 1]  # too few
    side = [0, 0, 1] + [0] * 12 + [1] * 12 + [0, 1, 1]
    assert served(side, np.linspace(-1, 1, 30).tolist()) == side  # no groups
    assert served([0] * 5 + [1] * 6, [-2] * 5 + [2] * 3 + [-2] * 3) == [0] * 5 + [1] * 6  # half of a side would go


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
    c = replace(c, late=rng.integers(0, 3, K), paths=None if by_pairs else rng.random((K, 3)))
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
    """The second model is of no use to 24."""

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        scores = super().evaluate(clients, models, which, split)
        return replace(scores, loss=np.where((clients == 24) & (which == 0), np.nan, scores.loss))


class Away(Kinds):
    """Too few of them answer."""

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        raise TooFewReplies


def but(*misplaced: int) -> NDArray[Any]:
    """The kinds of 50 clients, if all but these are where they belong."""
    return SIDE ^ np.isin(np.arange(50), misplaced)


def divided(unsure: Ids = WAITING) -> FedGWCState:
    """50 clients on the two sides of a cut, whose models have become 0 and 1."""
    state = ASK.init(torch.zeros(1, dtype=torch.float64), 50)
    root = replace(state.clusters[0], distances=squared((SIDE + 0.1 * np.sin(np.arange(50))).tolist()))
    return replace(state, clusters=in_two(root, SIDE, 1, unsure), n_born=3)


def in_two(whole: Cluster, labels: Ids, first: int, unsure: Ids) -> tuple[Cluster, ...]:
    children = []
    for y, c in enumerate(ASK._children(whole, labels, {}, first, 0, unsure)):
        K = len(c.members)
        met: dict[str, Any] = {"visits": np.full((K, K), 20), "ripe": K * (K - 1)}
        children.append(replace(c, server=Server(torch.full((1,), float(y), dtype=torch.float64)), **met))
    return tuple(children)


def members(state: FedGWCState) -> list[list[int]]:
    return [c.members.tolist() for c in state.clusters]


def halves(*misplaced: int) -> list[list[int]]:
    return [np.flatnonzero(but(*misplaced) == y).tolist() for y in (0, 1)]


def who_waits(state: FedGWCState) -> list[list[int] | None]:
    return [None if c.waiting is None else c.waiting.tolist() for c in state.clusters]


def nobody_waits(state: FedGWCState, late: Ids = WAITING) -> None:
    for c in state.clusters:
        assert c.waiting is None
        assert c.late is not None
        assert c.late.tolist() == np.where(np.isin(c.members, late), 2, 0).tolist()


PARTED = 200  # rounds, in which the 20 of a side who do not wait train 30 times each, 3 at a time


def look(algorithm: FedGWC, state: FedGWCState, engine: Kinds, number: int = PARTED) -> tuple[FedGWCState, list[Verdict]]:
    clusters, verdicts = looked_again(algorithm, state.clusters, engine, 50, number)
    return replace(state, clusters=tuple(clusters)), verdicts


def test_who_waits_and_is_misplaced_changes_sides() -> None:
    state, engine = divided(), Kinds(but(24, 49))
    after, verdicts = look(ASK, state, engine)
    assert engine.asked == [WAITING.tolist()]
    assert members(after) == halves(24, 49)  # sorted, and everybody is somewhere
    nobody_waits(after)
    assert verdicts == [
        Verdict(1, 25, "moved", sizes=(24, 1), to=2),
        Verdict(2, 25, "moved", sizes=(24, 1), to=1),
    ]
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
    assert verdicts == [Verdict(1, 25, "moved", sizes=(25 - n, n), to=2)]
    [row] = ASK.verdicts(replace(after, verdicts=tuple(verdicts)))
    assert (row["divides"], row["to"], row["why"]) == (False, 2, f"the model of cluster 2 {words} there")


def test_who_is_where_it_belongs_stays() -> None:
    state = divided()
    after, verdicts = look(ASK, state, Kinds(but(0, 30)))  # who did not wait is not asked
    assert members(after) == members(state)
    assert verdicts == []
    nobody_waits(after)
    for c, was in zip(after.clusters, state.clusters, strict=True):
        assert (c.ripe, c.P is was.P, c.cut is was.cut) == (was.ripe, True, True)


def test_no_side_becomes_smaller_than_the_smallest_group() -> None:
    """One may go if another comes; else nobody does."""
    guarded = replace(ASK, min_size=25)
    after, verdicts = look(guarded, divided(), Kinds(but(24)))
    assert (members(after), verdicts) == (halves(), [])
    assert who_waits(after) == [None, None]
    after, verdicts = look(guarded, divided(), Kinds(but(24, 49)))
    assert members(after) == halves(24, 49)
    assert len(verdicts) == 2


def test_where_too_few_answer_nobody_moves_and_nobody_waits() -> None:
    after, verdicts = look(ASK, divided(), Away(but(24, 49)))
    assert (members(after), verdicts) == (halves(), [])
    nobody_waits(after)


@pytest.mark.parametrize("engine", [Kinds(but(24, 49), silent=[24]), Unsure(but(24, 49)), Lost(but(24, 49))])
def test_who_does_not_answer_stays(engine: Kinds) -> None:
    after, _ = look(ASK, divided(), engine)
    assert members(after) == halves(49)
    nobody_waits(after)


def test_where_nobody_answers_nobody_moves() -> None:
    after, verdicts = look(ASK, divided(), Kinds(but(24, 49), silent=WAITING.tolist()))
    assert (members(after), verdicts) == (halves(), [])
    nobody_waits(after)


def test_models_that_serve_everybody_alike_move_nobody() -> None:
    state = divided()
    alike = replace(state, clusters=tuple(replace(c, server=Server(torch.zeros(1))) for c in state.clusters))
    after, verdicts = look(ASK, alike, Kinds(but(24, 49)))
    assert (members(after), verdicts) == (halves(), [])
    nobody_waits(after)


def test_who_answers_for_another_is_not_heard() -> None:
    """0 would be served better elsewhere, but has trained its side's model since."""
    after, _ = look(ASK, divided(), Kinds(but(0, 24, 49), stand_ins={24: 0}))
    assert members(after) == halves(49)


@pytest.mark.parametrize("number", [1, PARTED - 1])
def test_nobody_is_asked_before_the_sides_have_parted(number: int) -> None:
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
    """Whoever else never answers."""
    *_, (_, last) = rounds(ASK, Kinds(SIDE, silent=range(20)), torch.empty(0), 50, PARTED, state=divided())
    assert who_waits(last) == [None, None]


def test_clients_move_between_the_sides_of_their_own_division() -> None:
    """Two divisions at once, of 0-24 and of 25-49; one side is younger."""
    state = divided(ids())
    labels, places = np.repeat([0, 1], [13, 12]), np.concatenate([np.arange(8, 13), np.arange(20, 25)])
    left, right = (in_two(c, labels, first, places) for c, first in zip(state.clusters, (3, 5), strict=True))
    right = right[0], replace(right[1], born=150)
    mixed = replace(state, clusters=(left[0], right[0], left[1], right[1]), n_born=7)
    kind = np.tile(labels, 2)
    kind[[12, 24, 37, 49]] ^= 1
    engine = Kinds(kind)
    after, verdicts = look(ASK, mixed, engine)
    assert engine.asked == [places.tolist()]
    assert members(after) == [[*range(12), 24], list(range(25, 38)), list(range(12, 24)), list(range(38, 50))]
    assert [(v.cluster, v.to) for v in verdicts] == [(3, 4), (4, 3)]
    assert [w is None for w in who_waits(after)] == [True, False, True, False]


# Rounds


def test_a_round_in_which_clients_move_leaves_its_state_alone_and_tells() -> None:
    state = divided()
    before = pack(state)
    after = ASK.round(state, Kinds(but(24, 49)), Rng(0, PARTED))
    assert pack(state) == before
    assert members(after) == halves(24, 49)
    assert [v.reason for v in after.verdicts[:2]] == ["moved", "moved"]


def test_who_waits_is_not_sampled() -> None:
    state = divided()
    engine = Kinds(SIDE)
    after = replace(ASK, rate=1.0).round(state, engine, Rng(0, 1))
    assert engine.trained == [np.setdiff1d(np.arange(50), WAITING).tolist()]
    assert who_waits(after) == [WAITING[:5].tolist(), WAITING[5:].tolist()]
    some = replace(ASK, rate=0.4)  # of the 20 who do not wait
    drawn = [some._sample(state.clusters[0], state, Rng(0, t)) for t in range(100)]
    assert {len(clients) for clients in drawn} == {8}
    assert np.unique(np.concatenate(drawn)).tolist() == list(range(20))


def test_who_waits_stands_in_for_nobody() -> None:
    assert ASK.sitting_out(divided()).tolist() == WAITING.tolist()
    assert ASK.sitting_out(ASK.init(torch.zeros(1), 9)).tolist() == []


def test_no_window_ends_while_somebody_waits() -> None:
    over = divided().clusters[0]
    assert ASK.attempt(over, 50, 0).cluster is over
    assert ASK.attempt(replace(over, waiting=None), 50, 0).verdict is not None


def drawn(c: Cluster, state: FedGWCState) -> Ids:
    """How often each client was, in 2,000 rounds."""
    return np.bincount(np.concatenate([ASK._sample(c, state, Rng(1, t)) for t in range(2000)]), minlength=30)


def test_who_has_waited_is_drawn_twice_as_often() -> None:
    state = ASK.init(torch.zeros(1), 30)
    [c] = state.clusters
    late = np.isin(np.arange(30), [3, 4, 5])
    counts = drawn(replace(c, late=2 * late), state)
    assert counts[late].mean() / counts[~late].mean() == pytest.approx(2, rel=0.15)
    counts = drawn(c, state)
    assert counts[late].mean() / counts[~late].mean() == pytest.approx(1, rel=0.1)
    counts = drawn(replace(c, late=2 * late, waiting=ids(0, 1, 2)), state)  # places move, and weights with them
    assert counts[:3].tolist() == [0, 0, 0]
    assert counts[late].mean() / counts[6:].mean() == pytest.approx(2, rel=0.15)


def test_the_losses_of_who_is_late_are_none_to_compare() -> None:
    """Places 1, 2 and 4."""
    pairs, clients, nobody = known(), known(replace(ASK, pairs_up_to=2)), replace(known(), late=None)
    assert without_late(pairs).visits.tolist() == [[1, 0, 0, 4, 0], [0] * 5, [0] * 5, [31, 0, 0, 34, 0], [0] * 5]
    assert without_late(clients).visits.tolist() == [1, 0, 0, 4, 0]
    assert without_late(nobody) is nobody
    assert nobody.visits.all()


@pytest.mark.parametrize("by_pairs", [True, False])
def test_who_is_late_was_not_there_when_a_window_ends(by_pairs: bool) -> None:
    """The same as if it had been seen by nobody; and another thing than if it had been there."""
    algorithm = replace(ASK, pairs_up_to=30 if by_pairs else 2)
    [c] = algorithm.init(torch.zeros(1), 30).clusters
    rng = np.random.default_rng(0)
    views = {name: rng.random(c.P.shape) for name in ("P", "sides", "spreads")}
    away = np.isin(np.arange(30), [3, 4])

    def window(unseen: bool, late: Ids | None) -> NDArray[Any]:
        visits = np.full(c.P.shape, 20)
        if unseen:
            visits[away] = visits.T[away] = 0
        mine: dict[str, Any] = {name: a.copy() for name, a in views.items()}
        ended = algorithm.attempt(replace(c, **mine, visits=visits, ripe=900, late=late), 30, 0).cluster
        found = ended.distances if by_pairs else ended.paths
        assert found is not None
        return found

    there, late = window(False, None), window(False, 2 * away)
    np.testing.assert_array_equal(late, window(True, None))
    assert abs(late[3] - there[3]).max() > 0.01
    if not by_pairs:
        np.testing.assert_allclose(late[3], there[~away].mean(0))


def test_who_is_late_is_so_for_two_windows() -> None:
    """That in which it waited, of 30 rounds here, and the next, of 20."""
    after = [one_less(late) for late in (ids(0, 2, 1), ids(0, 1), ids(0, 0), None)]
    assert [late is not None and late.tolist() for late in after] == [[0, 1, 0], False, False, False]
    seen: list[tuple[int, Any, Any]] = [(0, None, None)]
    for t, s in rounds(replace(ASK, rate=1.0), Kinds(SIDE), torch.empty(0), 50, 55, state=divided()):
        [c] = [c for c in s.clusters if 0 in c.members]
        now = t, who_waits(s)[0], None if c.late is None else c.late[18:].tolist()
        seen += [now] if now[1:] != seen[-1][1:] else []
    assert seen[1:] == [(1, WAITING[:5].tolist(), None), (30, None, [0, 0, 1, 1, 1, 1, 1]), (50, None, None)]


def test_children_are_as_late_as_they_were() -> None:
    whole = replace(divided(ids()).clusters[0], late=np.repeat([0, 2, 1], [5, 10, 10]))
    left, right = ASK._children(whole, np.repeat([0, 1], [10, 15]), {}, 3, 0)
    assert left.late is not None
    assert right.late is not None
    assert (left.late.tolist(), right.late.tolist()) == ([0] * 5 + [1] * 5, [1] * 5 + [0] * 10)
    assert (left.waiting, right.waiting) == (None, None)


# From the beginning

KIND = np.repeat([0, 1], [30, 32])  # of which the last two come later
ODD = 29  # loses more like the other kind
FOUND = np.where(np.arange(62) == ODD, 1, KIND)


class Heard(Kinds):
    """Losses that no model changes: 1 of the first kind, 2 of the other, and of some clients of either kind between these."""

    def __init__(self) -> None:
        super().__init__(KIND)
        self.level = 1.0 + KIND
        self.level[26:33] = [1.4, 1.4, 1.4, 1.6, 1.6, 1.6, 1.6]

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        told = super().train(clients, models, which, seed)
        noise = 0.02 * np.random.default_rng(seed).standard_normal((len(told), 4))
        return replace(told, losses=torch.from_numpy(self.level[told.clients][:, None] + noise))


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


@pytest.mark.parametrize("settings", [{}, {"pairs_up_to": 2, "visits": 2}], ids=["by pairs", "by client"])
def test_a_client_on_the_wrong_side_finds_its_own(settings: dict[str, Any]) -> None:
    """Windows of 20 rounds: the second divides, and for 30 rounds those in the middle wait."""
    algorithm, states = play(95, **settings)
    assert states[39].splits[0].labels.tolist() == FOUND[:60].tolist()
    assert who_waits(states[39]) == [[26, 27, 28], [ODD, 30, 31, 32]]
    moved = [(t, v.cluster, v.sizes, v.to) for t, s in enumerate(states, 1) for v in s.verdicts if v.reason == "moved"]
    assert moved == [(70, 2, (30, 1), 1)]
    assert algorithm.clustering(states[-1]).labels.tolist() == KIND[:60].tolist()
    assert [c.server.theta.item() for c in states[-1].clusters] == pytest.approx([0, 1])
    assert all(c.late is None and c.waiting is None for c in states[-1].clusters)
    for s in states:
        assert sorted(k for c in s.clusters for k in c.members.tolist()) == list(range(60))
    [root, left, right] = algorithm.tree(states[-1])
    assert sorted(left["members"] + right["members"]) == root["members"]

    algorithm, states = play(95, **settings, second_look=False)
    assert algorithm.clustering(states[-1]).labels.tolist() == FOUND[:60].tolist()
    assert all(c.waiting is None and c.late is None for s in states for c in s.clusters)


def test_nobody_waits_where_clients_are_divided_because_they_drift() -> None:
    for settings, reason, waits in (({}, "drift", False), ({"drift": 9.0}, "groups", True)):
        _, states = play(40, Drifting(), **settings)
        assert [v.reason for s in states for v in s.verdicts if v.divides] == [reason]
        assert [w is not None for w in who_waits(states[-1])] == [waits, waits]


@pytest.mark.parametrize("who", ["waiting", "late"])
def test_a_state_in_which_somebody_waits_or_is_late_is_saved_and_read(who: str) -> None:
    algorithm, states = play(76)
    at = next(t for t, s in enumerate(states, 1) if any(getattr(c, who) is not None for c in s.clusters))
    again = unpack(pack(states[at - 1]), FedGWCState)
    for a, b in zip(again.clusters, states[at - 1].clusters, strict=True):
        np.testing.assert_array_equal(getattr(a, who), getattr(b, who))
    *_, (_, last) = rounds(algorithm, Heard(), torch.empty(0), 0, 76, seed=1, state=again, done=at)
    assert pack(last) == pack(states[-1])


def test_a_federation_grows_while_somebody_waits() -> None:
    """By two who are of the second kind."""
    algorithm, states = play(45)
    wider = grow(states[-1], ids(1, 1))
    assert members(wider) == [list(range(29)), list(range(29, 62))]
    assert who_waits(wider) == who_waits(states[-1]) == [[26, 27, 28], [ODD, 30, 31, 32]]
    found = [s for _, s in rounds(algorithm, Heard(), torch.empty(0), 0, 95, seed=1, state=wider, done=45)]
    assert algorithm.clustering(found[-1]).labels.tolist() == KIND.tolist()
    late = next(s for s in found if any(c.late is not None for c in s.clusters))
    wider = grow(late, ids(0))
    assert wider.clusters[0].late.tolist() == [*late.clusters[0].late.tolist(), 0]


# Recordings


def test_a_replay_asks_nobody() -> None:
    engine = Heard()
    everybody, which = np.arange(60), np.zeros(60, np.int64)
    losses = [engine.train(everybody, torch.zeros(1, 1), which, t).losses.numpy() for t in range(70)]
    trace = Trace(np.tile(everybody, (70, 1)), np.stack(losses), 60)

    def seen(second_look: bool) -> list[bytes]:
        states: list[bytes] = []
        algorithm, _ = play(0, second_look=second_look)
        last = replay(trace, algorithm, watch=lambda _, s: states.append(pack(s)))
        assert members(last) == [list(range(29)), list(range(29, 60))]
        return states

    assert seen(True) == seen(False)
