"""The default's way to split: a cut that two windows of rounds agree on, among clients who differ enough."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from fedgwc.flower.joining import grow

from fedgwc.algorithms.auto.algorithm import FedGWC
from fedgwc.algorithms.auto.cuts import Cut
from fedgwc.algorithms.auto.readings import first_losses, gaussian_rewards, gaussian_sides, gaussian_spreads, loss_variances
from fedgwc.algorithms.auto.state import Verdict
from fedgwc.algorithms.auto.verdicts import in_words, judged
from fedgwc.algorithms.auto.windows import axes_of
from fedgwc.algorithms.fedgwc import perception
from fedgwc.algorithms.perception import perception_distances
from fedgwc.core.errors import InputError
from fedgwc.core.types import Rng, Updates
from fedgwc.io.state_file import pack, unpack
from fedgwc.metrics import adjusted_rand_index
from fedgwc.runs.loop import rounds

GROUP = np.repeat([0, 1], [18, 12])


class Spoken:
    """Losses of 30 clients: level(round)[client] plus the noise of a batch, as large as a client is restless."""

    def __init__(self, level, noise=0.1, steps=5):
        self.level, self.noise, self.steps = level, noise, steps

    def train(self, clients, models, which, seed):
        rng = np.random.default_rng(seed)
        self.round = getattr(self, "round", 0) + 1
        noise = np.broadcast_to(self.noise, 30)[clients][:, None] * rng.standard_normal((len(clients), self.steps))
        losses = self.level(self.round)[clients][:, None] + noise
        return Updates(clients, models[which], torch.from_numpy(losses), torch.ones(len(clients)))


def play(engine, n_rounds, **settings):
    """Windows of 20 rounds with everybody there, and divisions that nobody tries."""
    algorithm = FedGWC(**{"rate": 1.0, "visits": 20, "second_look": False} | settings)
    start = torch.zeros(2, dtype=torch.float64)
    return algorithm, [s for _, s in rounds(algorithm, engine, start, 30, n_rounds, seed=1)]


def levels(apart, spread=0.0):
    """Two groups whose losses lie `apart`, and clients that differ for ever by `spread` besides."""
    own = spread * np.random.default_rng(0).standard_normal(30)
    return lambda t: 1 + apart * GROUP + own


def first_division(states):
    return next(s.splits[0].labels.tolist() for s in states if s.splits)


def test_two_windows_that_agree_split():
    """The second one ends in round 40."""
    algorithm, states = play(Spoken(levels(apart=1.0)), 45)
    assert [len(s.clusters) for s in states].index(2) == 39
    assert algorithm.clustering(states[-1]).labels.tolist() == GROUP.tolist()
    [split] = states[39].splits
    assert split.P.shape == split.distances.shape == (30, 30)
    assert set(algorithm.events(states[39])["0"]) == {"P", "distances", "echo", "members", "labels"}
    assert states[40].splits[0].P is None  # news for one round


def test_clients_that_differ_no_more_than_their_batches_stay_together():
    _, states = play(Spoken(levels(apart=0.0)), 205)
    assert states[-1].splits == ()
    assert states[-1].clusters[0].attempts == 9  # after each window but the first
    assert states[-1].clusters[0].contrast < 0.5
    # groups a tenth of a batch's noise apart are found by counting long enough, and are not worth a split
    _, states = play(Spoken(levels(apart=0.03)), 600)
    assert states[-1].splits == ()
    _, states = play(Spoken(levels(apart=0.03)), 600, contrast=0.0)
    assert states[-1].splits  # what the contrast prevents


def test_where_echoes_are_heard_they_are_what_clients_who_lose_alike_are_told_by():
    """A third of the clients a round: these echoes are noise, and never make a group of those that contrast would protect."""
    near, some = levels(apart=0.03), {"rate": 0.3, "visits": 3}
    _, states = play(Spoken(near), 1000, **some)
    assert states[-1].splits == ()
    assert all(v.by_echoes for _, v in verdicts(states))
    assert {r for _, _, r in reasons(states)} <= {"first cut", "agreement", "no groups", "chance"}
    _, states = play(Spoken(near), 1000, echo=False, **some)
    assert states[-1].splits == ()
    assert "contrast" in {r for _, _, r in reasons(states)}
    _, states = play(Spoken(near), 1000, echo=False, contrast=0.0, **some)
    assert first_division(states) == GROUP.tolist()  # what the contrast prevents


def test_one_odd_client_is_no_contrast():
    """In cohorts of three, one client far off makes the variance large over all rounds, and ordinary in most of them."""
    odd = lambda t: 1 + 5.0 * (np.arange(30) == 7)  # noqa: E731
    _, states = play(Spoken(odd), 600, rate=0.1, visits=3)
    assert max(s.clusters[0].contrast for s in states if s.clusters[0].heard > 50) > 20
    assert states[-1].splits == ()


@pytest.mark.parametrize("seed", range(6))
def test_clients_that_differ_without_groups_stay_together(seed):
    """Everybody has a level of their own, far more than batches differ: a continuum without groups."""
    own = np.random.default_rng(seed).standard_normal(30)
    _, states = play(Spoken(lambda t: 10 + own), 120)
    assert states[-1].clusters[0].contrast > 100
    assert states[-1].splits == ()


class Drifting(Spoken):
    """Losses that one local step of the clients named divides by `falls`."""

    def __init__(self, level, falls, who, **more):
        super().__init__(level, **more)
        self.factor = np.where(who, 1 / falls, 1.0)

    def train(self, clients, models, which, seed):
        told = super().train(clients, models, which, seed)
        told.losses[:, 1:] *= torch.from_numpy(self.factor[clients][:, None])
        return told


def test_clients_who_cannot_use_what_they_share_are_divided_even_without_groups():
    """A step of their own leaves a third of the loss; two thirds would be too much. Nothing but that divides here."""
    level, never = levels(apart=0.0, spread=0.2), {"gain": 1e9}
    everybody = np.ones(30, bool)
    _, states = play(Drifting(level, 3.0, everybody), 240, **never)
    assert 1.5 < states[0].clusters[0].drift < 2.5
    assert states[-1].splits
    for still in (Drifting(level, 1.5, everybody), Drifting(level, 3.0, ~everybody)):
        _, states = play(still, 240, **never)
        assert states[-1].splits == ()
    _, states = play(Drifting(level, 3.0, everybody), 240, drift=4.0, **never)
    assert states[-1].splits == ()


def test_drift_divides_from_the_third_window_on_and_children_from_their_second():
    """A child is born with a cut, that of its parent's windows. Nothing but drift divides here."""
    everybody = np.ones(30, bool)
    algorithm, states = play(Drifting(levels(apart=0.0, spread=0.2), 3.0, everybody), 100, gain=1e9)
    assert [t for t, v in verdicts(states) if v.cluster == 0] == [20, 40, 60]
    assert [(t, v.cluster) for t, v in verdicts(states) if v.divides] == [(60, 0), (100, 1), (100, 2)]
    assert {v.reason for _, v in verdicts(states) if v.divides} == {"drift"}
    assert all((v.adrift, v.rounds) == (20, 20) for _, v in verdicts(states))  # they drifted from the first window on
    [early] = algorithm.verdicts(states[39])
    assert early["why"].startswith("the window before would have cut elsewhere (agreement ")
    told = f"one step of their own takes much of clients' losses away (drift {early['drift']:.2f}, at least 1 in 20 of 20 rounds)"
    assert early["why"].endswith(f"), and {told}: a later window may divide them for that")


def test_one_client_who_drifts_does_not_divide_the_others():
    one = np.arange(30) == 7
    far = lambda t: 1 + 50.0 * one  # noqa: E731
    _, states = play(Drifting(far, 100.0, one), 600, rate=0.1, visits=3)
    assert max(s.clusters[0].drift for s in states) > 1
    assert not any(s.clusters[0].adrift for s in states)  # half of a cohort must
    assert states[-1].splits == ()


def test_windows_that_disagree_do_not_split():
    """Half a batch's noise sets one grouping apart in the first window, ten times as much another one in the second."""
    other = np.random.default_rng(0).permutation(GROUP)

    def changing(t):
        return 1 + (0.05 * other if t <= 20 else 1.0 * GROUP)

    _, states = play(Spoken(changing), 40)
    assert states[-1].splits == ()
    algorithm, states = play(Spoken(changing), 40, agreement=-1.0)
    assert algorithm.clustering(states[-1]).labels.tolist() == GROUP.tolist()
    algorithm, states = play(Spoken(changing), 60)  # the third window agrees with the second
    assert algorithm.clustering(states[-1]).labels.tolist() == GROUP.tolist()


def test_a_harder_and_an_easier_half_need_the_sides():
    """Two groups of one size lie equally far from the mean: the rewards are the same."""
    half = lambda t: 1 + np.repeat([0.0, 1.0], 15)  # noqa: E731
    algorithm, states = play(Spoken(half), 80)
    assert algorithm.clustering(states[-1]).labels.tolist() == [0] * 15 + [1] * 15
    algorithm, blind = play(Spoken(half), 80, sides=False)
    assert abs(adjusted_rand_index(half(0), algorithm.clustering(blind[-1]).labels)) < 0.2


def test_steady_and_restless_clients_need_the_spreads():
    """Losses of the same mean, batches that vary more in one group. That is no contrast, so it takes one of 0."""
    _, states = play(Spoken(levels(0.0), noise=np.where(GROUP, 0.3, 0.1)), 120, contrast=0.0)
    assert first_division(states) == GROUP.tolist()


def test_differences_that_pass_are_remembered():
    """Groups apart for the first window only, and everybody different for ever: late rounds alone would not tell the groups."""
    own = 0.5 * np.random.default_rng(0).standard_normal(30)
    early = lambda t: 1 + own + (3.0 * GROUP if t <= 20 else 0.0)  # noqa: E731
    algorithm, states = play(Spoken(early), 40)
    assert algorithm.clustering(states[-1]).labels.tolist() == GROUP.tolist()


def test_clients_who_differed_in_half_of_a_window_count_as_differing_for_good():
    """Groups are apart in the first 10 of 20 rounds, or in 9, and never again. Their children begin anew."""

    def early(n):
        return lambda t: 1 + GROUP * (t <= n)

    algorithm, states = play(Spoken(early(10)), 200)
    assert [t for t, v in verdicts(states) if v.divides] == [40]
    assert first_division(states) == GROUP.tolist()
    assert [s.clusters[0].differed for s in (states[18], states[19], states[38])] == [False, True, True]
    (_, first), (_, second) = verdicts(states)[:2]
    assert (first.apart, first.differed, first.differs) == (10, False, True)
    assert (second.apart, second.differed, second.differs) == (0, True, True)
    [row] = algorithm.verdicts(states[39])
    assert row["why"].endswith(", at least 2 in 0 of 20 rounds, and in half of those of an earlier window)")
    assert states[39].splits[0].differed
    assert not any(c.differed for s in states[39:] for c in s.clusters)

    _, states = play(Spoken(early(9)), 200)
    assert [v.reason for _, v in verdicts(states)] == ["first cut"] + 9 * ["contrast"]
    assert all(v.agreement == 1 and v.gain > v.wanted for _, v in verdicts(states)[1:])  # nothing else is missing
    assert not any(s.clusters[0].differed for s in states)


def test_the_middle_one_of_three_groups_is_not_cut_through():
    algorithm, states = play(Spoken(lambda t: 1 + np.repeat([0.0, 1.0, 2.0], 10)), 120)
    assert sorted(np.bincount(states[-1].splits[0].labels).tolist()) == [10, 20]
    assert algorithm.clustering(states[-1]).labels.tolist() == np.repeat([0, 1, 2], 10).tolist()


def test_few_clients_are_seen_along_few_axes():
    """One for every 10; groups among few clients still show beside what sets every one of them apart."""
    found = [axes_of(K, 6) for K in (5, 10, 20, 29, 30, 59, 60, 10**6)]
    assert found == [(2, 1), (2, 1), (2, 2), (2, 2), (3, 2), (5, 2), (6, 2), (6, 2)]
    assert axes_of(100, 1) == (1, 2)


def test_children_go_on_from_what_was_known():
    """Three groups, found one after the other; the distances between members are kept, P starts afresh."""
    three = np.repeat([0.0, 4.0, 5.0], 10)
    algorithm, states = play(Spoken(lambda t: 1 + three), 120)
    assert algorithm.clustering(states[-1]).labels.tolist() == np.repeat([0, 1, 2], 10).tolist()
    born = next(t for t, s in enumerate(states) if len(s.clusters) == 2)
    parent, child = states[born].splits[0], max(states[born].clusters, key=lambda c: len(c.members))
    np.testing.assert_array_equal(child.distances, parent.distances[np.ix_(child.members, child.members)])
    assert not child.visits.any()
    assert child.cut.tolist() == [0] * 10 + [1] * 10  # so the next window can agree


def test_a_window_holds_means_of_its_rounds_and_the_distances_those_before():
    _, states = play(Spoken(levels(apart=0.0)), 47)
    last = states[-1].clusters[0]
    assert last.visits.min() == last.visits.max() == 7
    engine = Spoken(levels(apart=0.0))
    seeds = [Rng(1, t).training for t in range(1, 48)]
    said = [engine.train(np.arange(30), torch.zeros(1, 2), np.zeros(30, int), s).losses.numpy() for s in seeds]
    for seen, reading in ((last.P, gaussian_rewards), (last.sides, gaussian_sides), (last.spreads, gaussian_spreads)):
        mean = np.mean([reading(x) for x in said[40:]], 0)
        np.testing.assert_allclose(seen, np.repeat(mean[:, None], 30, 1), rtol=1e-9)
    between, within = np.sum([loss_variances(x) for x in said[40:]], 0)
    assert (last.between, last.within) == pytest.approx((between, within))
    expected = 0.0
    for span in (said[:20], said[20:40]):
        for reading in (gaussian_sides, gaussian_spreads):
            mean = np.mean([reading(x) for x in span], 0)
            expected = expected + perception_distances(np.repeat(mean[:, None], 30, 1), np.ones((30, 30)))
    np.testing.assert_allclose(last.distances, expected, rtol=1e-6, atol=1e-12)


class Private(Spoken):
    """Clients that keep their losses: rewards, and perhaps what sums over the cohort say."""

    readings = False

    def train(self, clients, models, which, seed):
        told = super().train(clients, models, which, seed)
        losses, rewards, seen = told.losses.numpy(), torch.empty(len(clients)).double(), torch.empty(len(clients), 4).double()
        for cohort in (which == m for m in np.unique(which)):
            x = losses[cohort]
            rewards[cohort] = torch.from_numpy(gaussian_rewards(x))
            seen[cohort] = torch.tensor([*loss_variances(x), *first_losses(x)]).double()
        return replace(told, losses=told.losses[:, :0], rewards=rewards, readings=seen if self.readings else None)


class Summed(Private):
    readings = True


@pytest.mark.parametrize("kind", [Private, Summed])
def test_without_losses_rewards_divide(kind):
    """There are no sides and no spreads; with sums it is what open losses do without these."""
    far = lambda t: 1 + np.repeat([0.0, 3.0], [24, 6])  # noqa: E731
    _, states = play(kind(far), 90)
    assert sorted(len(c.members) for c in states[44].clusters) == [6, 24]
    if kind is Summed:
        _, same = play(Spoken(far), 90, sides=False)
        for a, b in zip(states, same, strict=True):
            assert [c.members.tolist() for c in a.clusters] == [c.members.tolist() for c in b.clusters]
            assert [(c.apart, c.adrift, c.heard) for c in a.clusters] == [(c.apart, c.adrift, c.heard) for c in b.clusters]


def test_without_losses_sums_tell_the_contrast_and_the_drift():
    """Six clients a little apart: rewards alone set them apart, and what sums say is that it is not worth a model."""
    six = np.repeat([0, 1], [24, 6])
    near = lambda t: 1 + 0.08 * six  # noqa: E731
    _, states = play(Private(near), 600)
    assert first_division(states) == six.tolist()
    _, states = play(Summed(near), 600)
    assert states[-1].splits == ()
    assert states[-2].clusters[0].contrast < 1
    assert -0.1 < states[-2].clusters[0].drift < 0.1


class SummedLater(Private):
    """Sums are told from the second window on."""

    @property
    def readings(self):
        return self.round > 20


def test_a_window_in_which_nobody_was_heard_does_not_make_clients_differ_for_good():
    """They are taken to differ in such a window, but the next ones, which are heard, say that they do not."""
    near = lambda t: 1 + 0.08 * np.repeat([0, 1], [24, 6])  # noqa: E731
    _, states = play(SummedLater(near), 200)
    (_, first), *later = verdicts(states)
    assert (first.rounds, first.differs) == (0, True)
    assert all((v.rounds, v.differed, v.differs) == (20, False, False) for _, v in later)
    assert states[-1].splits == ()
    assert "contrast" in {v.reason for _, v in later}
    _, states = play(Private(near), 200)  # nobody is ever heard
    assert states[-1].splits
    assert not any(v.differed for _, v in verdicts(states))


# Verdicts


def verdicts(states):
    return [(t, v) for t, s in enumerate(states, 1) for v in s.verdicts]


def reasons(states):
    return [(t, v.cluster, v.reason) for t, v in verdicts(states)]


def test_every_window_leaves_a_verdict_for_one_round():
    """Two groups one apart, where batches vary by a tenth."""
    algorithm, states = play(Spoken(levels(apart=1.0)), 41)
    assert reasons(states) == [(20, 0, "first cut"), (40, 0, "groups")]
    first, second = (v for _, v in verdicts(states))
    assert (first.clients, first.sizes, first.agreement) == (30, (18, 12), None)
    assert (second.sizes, second.agreement) == ((18, 12), 1.0)  # twice the same cut
    assert (second.rounds, second.apart, second.adrift) == (20, 20, 0)
    # 18 and 12 of 30 clients: 5 steps x the variance of the groups, 0.4 x 0.6 x 30 / 29, over that of a batch
    assert second.contrast == pytest.approx(5 * 0.4 * 0.6 * 30 / 29 / 0.1**2, rel=0.1)
    assert second.gain > 15
    assert second.score < 0.61
    [row] = algorithm.verdicts(states[39])
    assert row["divides"]
    assert row["sizes"] == [18, 12]
    assert row["why"].startswith("there are groups of clients that differ (gain ")
    assert row["why"].endswith(", at least 2 in 20 of 20 rounds)")
    assert json.loads(json.dumps(row)) == row
    assert algorithm.verdicts(states[40]) == []


def test_verdicts_name_what_is_missing():
    algorithm, states = play(Spoken(levels(apart=0.03)), 600)
    assert {r for _, _, r in reasons(states)} == {"first cut", "agreement", "contrast"}
    t, v = next((t, v) for t, v in verdicts(states) if v.reason == "contrast")
    assert 2 * v.apart < v.rounds == 20
    told = f"contrast {v.contrast:.2f}, at least 2 in {v.apart} of 20 rounds"
    assert algorithm.verdicts(states[t - 1])[0]["why"] == (
        f"in most rounds clients differ little beyond their own batches ({told})"
    )
    t, v = next((t, v) for t, v in verdicts(states) if v.reason == "agreement")
    assert v.agreement < 0.94
    why = algorithm.verdicts(states[t - 1])[0]["why"]
    assert why.startswith(
        f"the window before would have cut elsewhere (agreement {v.agreement:.2f}, threshold 0.94), and in most rounds"
    )

    own = np.random.default_rng(3).standard_normal(30)
    algorithm, states = play(Spoken(lambda t: 10 + own), 120)
    v = next(v for _, v in verdicts(states) if v.reason == "no groups")
    assert v.gain < 15
    assert v.contrast > 100

    _, states = play(Drifting(levels(apart=0.0, spread=0.2), 3.0, np.ones(30, bool)), 240)
    t, v = next((t, v) for t, v in verdicts(states) if v.divides)
    assert (v.reason, v.adrift, v.rounds) == ("drift", 20, 20)
    assert v.drift == pytest.approx(2, abs=0.2)  # a third is left: 3 - 1
    assert [s.ended for s in states[-1].splits] == [t for t, v in verdicts(states) if v.divides]


def test_a_verdict_by_hand():
    """Four rounds of six clients: first losses twice the second ones, variances three times those of batches."""
    cluster = FedGWC(min_size=1).init(torch.zeros(1), 6).clusters[0]
    heard = replace(cluster, heard=4, first=8.0, second=4.0, between=6.0, within=2.0, apart=2, adrift=1)
    cut = Cut(np.array([0, 0, 0, 1, 1, 1]), 0.25, np.ones(1), gain=12.0, on_line=np.arange(6.0))
    assert judged(heard, None, 0.9, 10, False).reason == "no cut"
    assert judged(heard, cut, 0.9, 10, False).reason == "first cut"
    other = replace(heard, cut=np.array([0, 0, 1, 1, 1, 1]))
    # Pairs together in both: 1 + 3; in either: 3 + 3 and 1 + 6; by chance 6 x 7 / 15 of them: (4 - 2.8) / (6.5 - 2.8)
    assert judged(other, cut, 0.9, 10, False).agreement == pytest.approx(1.2 / 3.7)
    assert judged(other, cut, 0.9, 10, False).reason == "agreement"
    for attempts, reason in ((0, "agreement"), (1, "drift"), (2, "drift")):  # any division helps, but not at once
        assert judged(replace(other, adrift=2, attempts=attempts), cut, 0.9, 10, False).reason == reason
    other = replace(other, attempts=1)
    for late, reason in ((0, "drift"), (1, "agreement")):  # but few may have told it while others are late
        drifting = replace(other, adrift=2, late=np.array([0, 0, 0, 0, 0, late]))
        assert judged(drifting, cut, 0.9, 10, False).reason == reason
    same = replace(heard, cut=1 - cut.labels, attempts=1)
    for asked, reason in ((11, "groups"), (12, "groups"), (13, "no groups")):
        v = judged(same, cut, 0.9, asked, False)
        assert (v.reason, v.agreement, v.drift, v.contrast, v.gain, v.wanted) == (reason, 1.0, 1.0, 2.0, 12.0, asked)
    assert judged(replace(same, apart=1), cut, 0.9, 10, False).reason == "contrast"
    assert judged(replace(same, apart=1, differed=True), cut, 0.9, 10, False).reason == "groups"
    assert judged(same, replace(cut, gain=-np.inf), 0.9, 10, False).reason == "no cut"
    assert judged(replace(same, adrift=2, attempts=0), replace(cut, gain=-np.inf), 0.9, 10, False).reason == "too early"
    assert judged(replace(same, apart=1, adrift=2), replace(cut, gain=-np.inf), 0.9, 10, False).reason == "drift"
    for told, reason in ((6.0, "groups"), (5.0, "chance")):  # 6 / sqrt(4): three deviations, and contrast is not asked for
        alike = replace(same, apart=0, told=told, told2=4.0)
        v = judged(alike, cut, 0.9, 10, True)
        assert (v.reason, v.foretold, v.by_echoes) == (reason, told / 2, True)
        assert judged(replace(alike, adrift=2), cut, 0.9, 10, True).reason == "drift"
        assert judged(alike, cut, 0.9, 13, True).reason == "no groups"
    assert in_words(v, 0.9, 1, 2).startswith(
        "groups may be chance: the cut before told who would help whom 2.5 deviations better than chance, threshold 3"
    )
    v = judged(same, cut, 0.9, -np.inf, False)
    assert (v.reason, v.wanted) == ("groups", None)
    assert in_words(v, 0.9, 1, 2).startswith("there are groups of clients that differ (gain 12.00; contrast")
    unheard = replace(cluster, cut=cut.labels)  # private losses without sums
    v = judged(unheard, cut, 0.9, 10, False)
    assert (v.reason, v.drift, v.contrast) == ("groups", None, None)
    assert in_words(v, 0.9, 1, 2) == "there are groups of clients that differ (gain 12.00, threshold 10; contrast unknown)"


def test_a_state_with_verdicts_is_saved_and_read():
    _, states = play(Spoken(levels(1.0)), 40)
    again = unpack(pack(states[-1]), type(states[-1]))
    assert again.verdicts == states[-1].verdicts
    assert len(again.verdicts) == 1


def test_other_rules_have_no_verdicts():
    _, states = play(Spoken(levels(1.0)), 60, when="visits", visits=3)
    assert states[-1].splits
    assert verdicts(states) == []


# States


def test_a_round_leaves_its_state_alone_and_advance_does_not():
    algorithm = FedGWC(rate=1.0)
    engine, state = Spoken(levels(1.0)), algorithm.init(torch.zeros(2, dtype=torch.float64), 30)
    pure = algorithm.round(state, engine, Rng(0, 1))
    assert not state.clusters[0].visits.any()
    engine.round = 0
    reused = algorithm.advance(state, engine, Rng(0, 1))
    assert reused.clusters[0].P is state.clusters[0].P
    for name in ("P", "sides", "spreads"):
        np.testing.assert_array_equal(getattr(pure.clusters[0], name), getattr(reused.clusters[0], name))


def test_the_end_of_a_window_leaves_the_state_before_it_alone():
    """A window's matrices and the distances are written over at its end: a round works on copies of its own."""
    algorithm, states = play(Spoken(levels(0.0)), 39)
    before = pack(states[-1])
    engine = Spoken(levels(0.0))
    algorithm.round(states[-1], engine, Rng(1, 40))
    assert pack(states[-1]) == before


def test_many_clients_are_divided_alike_in_float32_and_blocks(monkeypatch):
    """Thirty clients taken for many."""
    few = play(Spoken(lambda t: 1 + np.repeat([0.0, 4.0, 5.0], 10)), 120)
    monkeypatch.setattr(perception, "LARGE", 8)
    many = play(Spoken(lambda t: 1 + np.repeat([0.0, 4.0, 5.0], 10)), 120)
    assert many[1][0].clusters[0].sides.dtype == np.float32
    assert many[1][0].clusters[0].visits.dtype == np.int16
    a, b = ([(s.id, s.ended, s.labels.tolist()) for s in states[-1].splits] for _, states in (few, many))
    assert a == b
    assert len(a) == 2
    np.testing.assert_allclose(many[1][-1].clusters[0].distances, few[1][-1].clusters[0].distances, rtol=1e-4, atol=1e-6)


def test_a_state_in_its_second_window_is_saved_and_read():
    _, states = play(Spoken(levels(0.0)), 23)
    again = unpack(pack(states[-1]), type(states[-1]))
    a, b = (s.clusters[0] for s in (states[-1], again))
    for name in ("P", "sides", "spreads", "distances", "cut"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert a.between == b.between


def test_newcomers_stand_in_the_middle():
    """Distances to the mean of the others; of the others nothing changes, and nobody is compared with an older cut."""
    _, states = play(Spoken(levels(1.0)), 22)
    before = states[-1].clusters[0]
    after = grow(states[-1], np.zeros(2, np.int64)).clusters[0]
    np.testing.assert_array_equal(after.distances[:30, :30], before.distances)
    middle = before.distances.mean(0) - before.distances.mean() / 2
    np.testing.assert_allclose(after.distances[30:, :30], np.tile(middle, (2, 1)))
    assert (middle > 0).all()
    assert after.distances[30, 31] == 0
    assert after.cut is None
    assert after.sides.shape == after.spreads.shape == (32, 32)


@pytest.mark.parametrize(
    "settings",
    [
        {"step": "constant"},
        {"start": "1/K^2"},
        {"after_split": "keep"},
        {"contrast": -2.0},
        {"agreement": 1.5},
        {"directions": 0},
        {"drift": 0.0},
        {"gain": float("nan")},
    ],
    ids=str,
)
def test_what_windows_cannot_do_is_refused(settings):
    with pytest.raises(InputError, match=f"windows.*it needs|^{next(iter(settings))} must be"):
        FedGWC(**settings)


def test_every_reason_has_words_and_a_name():
    from fedgwc.report.verdicts import REASONS

    known = set(get_args(get_type_hints(Verdict)["reason"]))
    assert set(REASONS) == known
    for reason in known:
        assert in_words(Verdict(0, 6, reason, sizes=(4, 2), rounds=4), 0.9, 1.0, 2.0)
