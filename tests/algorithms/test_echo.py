"""Who helps whom: a client's first loss is lower than usual after those have trained who are of its kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedgwc.flower.joining import grow
from hypothesis import given
from hypothesis import strategies as st

from fedgwc.algorithms.auto.algorithm import SETTLED, FedGWC, _settled
from fedgwc.algorithms.auto.learning import USUAL, _prediction_score, learnt
from fedgwc.algorithms.auto.proposals import _groups
from fedgwc.algorithms.auto.readings import Readings, bounded
from fedgwc.algorithms.auto.windows import cloud, helping_axes, places
from fedgwc.core.types import Rng, Updates
from fedgwc.metrics import adjusted_rand_index
from fedgwc.runs.loop import rounds

KIND = np.repeat([0, 1], 20)
THREE = np.repeat([0, 1, 2], 10)


class Helping:
    """Clients of equal losses, but that the first is lower, the more of their kind trained in the round before."""

    def __init__(self, help=0.05, noise=0.1, liar=False, drop=0.0, kind=KIND):
        self.help, self.noise, self.liar, self.drop, self.kind = help, noise, liar, drop, kind
        self.before = np.array([], int)

    def train(self, clients, models, which, seed):
        rng = np.random.default_rng(seed)
        helped = (self.kind[clients][:, None] == self.kind[self.before]).sum(1)
        losses = np.exp(self.noise * rng.standard_normal((len(clients), 6)))
        losses[:, 0] *= np.exp(self.drop - self.help * helped)
        if self.liar:
            losses[clients == 7] *= 10.0 ** rng.integers(-200, 200)
        self.before = clients
        return Updates(clients, models[which], torch.from_numpy(losses), torch.ones(len(clients)))


def watched(engine, n_rounds, **settings):
    algorithm = FedGWC(**{"rate": 0.25, "visits": 3, "second_look": False} | settings)
    start = torch.zeros(2, dtype=torch.float64)
    return algorithm, [s for _, s in rounds(algorithm, engine, start, len(engine.kind), n_rounds, seed=1)]


def play(engine, n_rounds, **settings):
    algorithm, states = watched(engine, n_rounds, **settings)
    return algorithm, states[-1]


def taught(levels, usual, before, cut=None):
    """Echoes of one round in which clients 0, 1, ... had these log losses, of 6 clients of usual ones."""
    algorithm = FedGWC()
    [cluster] = algorithm.init(torch.zeros(1), 6).clusters
    cluster = replace(cluster, level=np.array(usual, float), before=None if before is None else np.array(before))
    cluster = replace(cluster, cut=None if cut is None else np.array(cut))
    losses = torch.from_numpy(np.exp(np.array(levels, float))[:, None].repeat(2, 1))
    losses[:, 1] = 1.0
    n = len(levels)
    updates = Updates(np.arange(n), torch.zeros(n, 1), losses, torch.ones(n))
    [cluster] = learnt(algorithm, [cluster], updates, np.zeros(n, int), Rng(0, 1))
    return cluster


def axes(echo, n):
    [cluster] = FedGWC().init(torch.zeros(1), len(echo)).clusters
    return helping_axes(replace(cluster, echo=echo), n)


def test_what_one_round_tells():
    """Clients 4 and 5 trained, and 0 has lost 0.3 less than usual, 1 as much and 2 0.3 more."""
    cluster = taught([-0.3, 0.0, 0.3], [0] * 6, before=[4, 5])
    expected = np.zeros((6, 6))
    expected[:3, 4:] = [[0.3], [0.0], [-0.3]]
    np.testing.assert_allclose(cluster.echo, expected, atol=1e-15)
    np.testing.assert_allclose(cluster.level, [-0.3 * USUAL, 0, 0.3 * USUAL, 0, 0, 0], atol=1e-15)
    assert cluster.before.tolist() == [0, 1, 2]


def test_what_everybody_gains_or_nobody_is_used_to_is_no_echo():
    assert not taught([-1.0, -1.0, -1.0], [0] * 6, before=[4, 5]).echo.any()
    assert not taught([-0.3, 0.0, 0.3], [0] * 6, before=None).echo.any()
    cluster = taught([-0.3, 0.0, 0.3], [np.nan] * 6, before=[4, 5])
    assert not cluster.echo.any()
    np.testing.assert_allclose(cluster.level[:3], [-0.3, 0.0, 0.3])
    one_unknown = taught([9.0, 0.0, 0.3, -0.1, 0.1], [np.nan, 0, 0, 0, 0, 0], before=[5])  # the others gain -0.075 on average
    np.testing.assert_allclose(one_unknown.echo[:5, 5], [0, 0.075, -0.225, 0.175, -0.025], atol=1e-12)


def test_too_few_answers_change_the_model_and_are_not_heard():
    cluster = taught([0.0, 0.0], [0] * 6, before=[4, 5])
    assert cluster.before is None
    assert not cluster.echo.any()
    assert taught([], [0] * 6, before=[4, 5]).before.tolist() == [4, 5]


def test_one_false_number_says_no_more_than_a_true_one_could():
    assert bounded(np.array([1.0, 2.0, 3.0, 4.0, np.inf])).tolist() == [1, 2, 3, 4, 8]
    assert bounded(np.array([5.0, 5.0, 5.0, 9.0])).tolist() == [5, 5, 5, 5]
    levels = Readings([[np.exp(k)] for k in (1, 2, 3, 4, 700)]).levels()
    np.testing.assert_allclose(levels, [1, 2, 3, 4, 8])
    assert np.isfinite(Readings([[0.0], [1.0], [2.0], [3.0]]).levels()).all()


def test_who_made_no_first_step_is_not_known():
    losses = np.exp([[1.0, 1], [2, 1], [3, 1], [4, 1]])
    losses[3, 0] = np.nan
    np.testing.assert_allclose(Readings(losses).levels(), [1, 2, 3, np.nan])
    losses[2, 0] = np.nan  # a step that two clients made tells nothing
    np.testing.assert_array_equal(Readings(losses).levels(), [np.nan] * 4)
    cluster = taught([np.nan, 0.0, 0.3, -0.1, 0.1], [0] * 6, before=[5])
    np.testing.assert_allclose(cluster.echo[:5, 5], [0, 0.075, -0.225, 0.175, -0.025], atol=1e-12)
    assert cluster.level[0] == 0


@given(st.integers(3, 12), st.integers(0, 10**6))
def test_helping_oneself_or_everybody_sets_nobody_apart(K, seed):
    rng = np.random.default_rng(seed)
    rows, columns = rng.standard_normal((2, K))
    echo = rows[:, None] + columns + np.diag(rng.standard_normal(K))
    assert axes(echo, 2).shape == (K, 0)


def test_kinds_are_told_by_whom_they_help():
    _, state = play(Helping(), 300, gain=1e9)
    [cluster] = state.clusters
    axis = helping_axes(cluster, 1)[:, 0]
    assert adjusted_rand_index(KIND, axis > np.median(axis)) > 0.6
    same = (KIND[:, None] == KIND) & ~np.eye(len(KIND), dtype=bool)
    assert cluster.echo[same].mean() > 0 > cluster.echo[KIND[:, None] != KIND].mean()


@pytest.mark.parametrize("liar", [False, True], ids=["honest", "one liar"])
def test_kinds_are_divided(liar):
    """Liars are outliers, who go with somebody in the end; the others are divided right."""
    settings = {"contrast": -1.0, "drift": 1e9}
    algorithm, state = play(Helping(liar=liar), 600, **settings)
    found = algorithm.clustering(state).labels
    others = np.arange(len(KIND)) != 7
    assert adjusted_rand_index(KIND[others], found[others]) == 1.0
    algorithm, state = play(Helping(liar=liar), 600, echo=False, **settings)
    assert not algorithm.clustering(state).labels.any()


def echoes_with(engine, n_rounds=400):
    """How well the first axis tells the kinds, where cohorts are of three: 30 clients, a tenth of them a round."""
    algorithm = FedGWC(gain=1e9, drift=1e9)
    *_, (_, state) = rounds(algorithm, engine, torch.zeros(2, dtype=torch.float64), 30, n_rounds, seed=1)
    axis = helping_axes(state.clusters[0], 1)[:, 0]
    return abs(np.corrcoef(axis, KIND[5:35])[0, 1])


class Few(Helping):
    """30 of them, of either kind 15."""

    def __init__(self, spoil=lambda losses, clients, rng: None, **settings):
        super().__init__(help=0.3, **settings)
        self.spoil = spoil

    def train(self, clients, models, which, seed):
        told = super().train(clients + 5, models, which, seed)
        self.spoil(told.losses, clients, np.random.default_rng(seed))
        return Updates(clients, told.models, told.losses, told.sizes)


def zeros(losses, clients, rng):
    losses[torch.from_numpy(rng.random(len(clients)) < 0.05), 0] = 0.0


def colluding(losses, clients, rng):
    if {3, 4} <= set(clients.tolist()):
        losses[clients == 3], losses[clients == 4] = 1e-300, 1e100


@pytest.mark.parametrize("spoil", [zeros, colluding])
def test_losses_that_know_no_measure_do_not_drown_the_others(spoil):
    """In cohorts of three, two that lie are most of them, and nothing else would bound what they say."""
    assert echoes_with(Few()) > 0.9
    assert echoes_with(Few(spoil)) > 0.7


@pytest.mark.parametrize("n", [6, 8, 12])
def test_one_liar_is_no_drift(n):
    """It says that its first step took everything away, and is in half of the cohorts of six clients."""

    def liar(losses, clients, rng):
        losses[clients == 0, 0] = 1e6

    algorithm = FedGWC()
    start = torch.zeros(2, dtype=torch.float64)
    states = [s for _, s in rounds(algorithm, Few(liar), start, n, 300, seed=1)]
    assert len(states[-1].clusters) == 1
    assert max(s.clusters[0].drift for s in states) > 1  # the mean is as high as it says
    *_, (_, state) = rounds(algorithm, Few(drop=3.0), start, n, 300, seed=1)
    assert len(state.clusters) > 1


@pytest.mark.parametrize("settings", [{"rate": 1.0}, {"rate": 0.25, "private": True}], ids=["everybody trains", "private losses"])
def test_who_drifts_without_echoes_is_cut_where_the_cloud_is(settings):
    private = settings.pop("private", False)

    class Drifting(Helping):
        def train(self, clients, models, which, seed):
            told = super().train(clients, models, which, seed)
            told.losses[:] *= torch.from_numpy(1 + 0.2 * np.arange(40)[clients])[:, None]
            if not private:
                return told
            seen = Readings(told.losses.numpy())
            whole = torch.from_numpy(np.array([*seen.variances(), *seen.first_losses()])).expand(len(clients), 4)
            return replace(told, losses=told.losses[:, :0], rewards=torch.from_numpy(seen.rewards()), readings=whole)

    def first_division(echo):
        _, state = play(Drifting(drop=1.0), 200, echo=echo, **settings)
        return state.splits[0].labels.tolist()

    assert first_division(True) == first_division(False)


def test_many_clients_without_echoes_yet():
    """Of which only a few eigenvectors are computed, in float32 above 1,024."""
    for K, real in ((401, np.float64), (1100, np.float32)):
        assert axes(np.zeros((K, K), real), 2).shape == (K, 0)
        rows, columns = np.random.default_rng(0).standard_normal((2, K)).astype(real)
        assert axes(rows[:, None] + columns, 2).shape == (K, 0)


def test_whom_nobody_helps_are_not_divided():
    algorithm, state = play(Helping(help=0.0), 600, contrast=-1.0, drift=1e9)
    assert not algorithm.clustering(state).labels.any()


def test_clients_that_drift_part_from_those_who_do_not_help_them():
    """In the third window, when there are no groups yet: with echoes the first division has most of a kind on one side."""

    def purity(echo):
        _, state = play(Helping(drop=1.0), 300, echo=echo, gain=1e9, visits=5)
        first = state.splits[0]
        return max(np.mean(first.labels == KIND), np.mean(first.labels != KIND))

    assert purity(True) > 0.85 > purity(False)


def test_newcomers_have_helped_nobody_yet():
    _, state = play(Helping(), 50)
    wider = grow(state, np.array([0, 0])).clusters[0]
    assert wider.echo.shape == (42, 42)
    assert np.isnan(wider.level[40:]).all()
    assert not wider.echo[40:].any()
    assert not wider.echo[:, 40:].any()


def test_their_axes_come_first():
    _, state = play(Helping(), 200, gain=1e9)
    [cluster] = state.clusters
    helping, points = places(cluster, 6)
    assert helping == 2
    np.testing.assert_allclose(points[:, 2:], cloud(cluster, 4))
    none, alone = places(replace(cluster, echo=None), 6)
    assert none == 0
    np.testing.assert_allclose(alone, cloud(cluster, 4))


# Clients that lose alike


def test_three_equal_groups_are_told_by_whom_they_help():
    """Contrast would keep them together, and which of three equally good cuts is best is chance in every window."""
    algorithm, states = watched(Helping(help=0.1, kind=THREE), 400, rate=0.3)
    assert adjusted_rand_index(THREE, algorithm.clustering(states[-1]).labels) == 1.0
    divided = [(s, v) for s in states for v in s.verdicts if v.divides]
    assert len(divided) == 2
    for state, v in divided:
        assert (v.reason, v.by_echoes) == ("groups", True)
        assert v.contrast < 0.2
        assert v.foretold >= 3
        [why] = [row["why"] for row in algorithm.verdicts(state) if row["divides"]]
        assert why.startswith("there are groups of clients that help each other (gain ")
    _, deaf = watched(Helping(help=0.1, kind=THREE), 400, rate=0.3, echo=False)
    assert deaf[-1].splits == ()
    assert not any(v.by_echoes for s in deaf for v in s.verdicts)


def test_clients_who_lose_alike_and_help_nobody_stay_together():
    _, states = watched(Helping(help=0.0, kind=THREE), 400, rate=0.3)
    assert states[-1].splits == ()
    seen = [v for s in states for v in s.verdicts]
    assert len(seen) >= 5
    assert all(v.by_echoes for v in seen)
    assert {v.reason for v in seen} <= {"first cut", "agreement", "no groups", "chance"}  # and never "contrast"


def test_the_cut_of_the_window_before_is_kept_as_long_as_it_stands():
    """Three places in a plane: whichever was cut off before is cut off again, unless the cut went through places."""
    noise = 0.1 * np.random.default_rng(0).standard_normal((30, 2))
    for turned in (0, 30, 90):  # so that a place lies on the first axis, or on none
        at = np.radians([turned, turned + 120, turned + 240])
        points = np.stack([np.cos(at), np.sin(at)], 1)[THREE] + noise
        for one in np.eye(3, dtype=np.int64):
            before = one[THREE]
            assert adjusted_rand_index(_groups(FedGWC(), points, before).labels, before) == 1.0
    best = _groups(FedGWC(), points, None)
    assert _groups(FedGWC(), points, np.arange(30) % 2).labels.tolist() == best.labels.tolist()
    nothing = np.random.default_rng(1).standard_normal((30, 2))  # no cut stands that gains too little
    assert _groups(FedGWC(), nothing, before).labels.tolist() == _groups(FedGWC(), nothing, None).labels.tolist()


def test_what_a_cut_foretells_by_hand():
    """0 gained 0.3, 1 nothing and 2 lost 0.3. A cut of six has 2 and 3 on one side: of its five others, 0 expects three to be
    on its side, and 2 expects one."""
    more, cut, k = np.array([0.3, 0.0, -0.3]), np.array([0, 0, 1, 1, 0, 0]), np.array([0, 1, 2])
    # all helpers on the side of 0, who had 1 - 3/5 more of them than expected, and 2 had 1/5 less
    assert _prediction_score(more, cut, k, np.array([4, 5])) == pytest.approx(0.3 * 0.4 + 0.3 * 0.2)
    assert _prediction_score(more, cut, k, np.array([3])) == pytest.approx(-0.3 * 0.6 - 0.3 * 0.8)
    # one of them is 0 itself, for whom only the other one counts
    assert _prediction_score(more, cut, k, np.array([0, 3])) == pytest.approx(-0.3 * 0.6 - 0.3 * (1 / 2 - 1 / 5))
    everybody = np.array([0.3, 0.2, -0.3, 0.1, -0.2, -0.1])
    assert _prediction_score(everybody, cut, np.arange(6), np.arange(6)) == pytest.approx(0)  # all helped: nothing to tell


def test_who_learns_faster_foretells_nothing():
    """85 of 100 gain more than the others in every round, whoever came before: no cut told that, though sides are unequal."""
    rng = np.random.default_rng(0)
    cut = np.repeat([0, 1], [85, 15])
    rounds_told = []
    for _ in range(300):
        k, before = rng.choice(100, 10, replace=False), rng.choice(100, 10, replace=False)
        more = 0.05 * (cut[k] == 0) + 0.05 * rng.standard_normal(10)
        rounds_told.append(_prediction_score(more - more.mean(), cut, k, before))
    assert abs(np.sum(rounds_told) / np.sqrt(np.sum(np.square(rounds_told)))) < 2


def test_a_round_says_whether_the_last_cut_told_it():
    cluster = taught([-0.3, 0.0, 0.3], [0] * 6, before=[4, 5], cut=[0, 0, 1, 1, 0, 0])
    assert (cluster.told, cluster.told2) == pytest.approx((0.18, 0.18**2))
    assert cluster.foretold == pytest.approx(1.0)  # one round is one deviation
    for silent in (taught([-0.3, 0.0, 0.3], [0] * 6, [4, 5]), taught([-0.3, 0.0, 0.3], [0] * 6, None, [0, 0, 1, 1, 0, 0])):
        assert (silent.told, silent.told2, silent.foretold) == (0, 0, 0)


def test_a_cut_that_stands_goes_on_telling_and_another_begins_anew():
    _, states = watched(Helping(kind=THREE), 300, rate=0.3, gain=1e9)  # so that nothing is divided
    ends = [(s.verdicts[0], s.clusters[0]) for s in states if s.verdicts]
    stood = [(v, c) for v, c in ends if v.agreement is not None and v.agreement >= 0.94]
    moved = [(v, c) for v, c in ends if v.agreement is None or v.agreement < 0.94]
    assert stood
    assert len(moved) >= 2
    for v, after in stood:
        assert after.foretold == v.foretold > 0
    for _, after in moved:
        assert (after.told, after.told2) == (0, 0)
    first = next(i for i, s in enumerate(states) if s.verdicts)
    assert not any(s.clusters[0].told2 for s in states[: first + 1])  # no cut yet that could tell
    assert all(s.clusters[0].told2 > 0 for s in states[first + 1 : first + 20])


def test_a_few_clients_have_time_to_make_a_model_theirs():
    """Six who are all there have met in one round; a window lasts until half of them have trained 10 times."""
    assert SETTLED == 10

    def tried(**settings):
        algorithm = FedGWC(rate=1.0, **settings)
        found = rounds(algorithm, Few(), torch.zeros(2, dtype=torch.float64), 6, 45, seed=1)
        return [t for t, s in found if s.verdicts]

    assert tried() == [10, 20, 30, 40]
    assert tried(visits=15) == [15, 30, 45]
    assert tried(pairs_up_to=0, visits=2) == [20, 40]  # by client windows are long enough: ten times the visits
    [cluster] = FedGWC().init(torch.zeros(1), 6).clusters
    for trained, enough in (([10, 10, 10, 0, 0, 0], True), ([10, 10, 9, 9, 9, 9], False), ([15] * 6, True)):
        assert _settled(replace(cluster, visits=np.diag(trained))) == enough


def test_other_rules_do_not_wait_until_clients_have_settled():
    algorithm = FedGWC(rate=1.0, when="visits", visits=3)
    found = rounds(algorithm, Few(), torch.zeros(2, dtype=torch.float64), 6, 3, seed=1)
    assert [sum(c.attempts for c in s.clusters) + len(s.splits) for _, s in found] == [0, 0, 1]


def test_only_where_pairs_and_losses_are_known():
    for settings in ({"echo": False}, {"sides": False}, {"pairs_up_to": 2}, {"when": "visits"}):
        [cluster] = FedGWC(**settings).init(torch.zeros(1), 4).clusters
        assert cluster.echo is None
        assert cluster.level is None
