"""The default's way to split: what two windows of rounds agree on, where clients differ more than their own batches do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedgwc.algorithms.fedgwc import FedGWC
from fedgwc.algorithms.fedgwc_state import Window, joined
from fedgwc.codec import pack, unpack
from fedgwc.core import Rng, Updates
from fedgwc.errors import InputError
from fedgwc.interactions import affinity, gaussian_rewards, gaussian_sides, loss_variances
from fedgwc.runner import rounds

GROUP = np.repeat([0, 1], [18, 12])


class Spoken:
    """Losses of 30 clients: level(round)[client] plus the noise of a batch, the same for all batches of one size."""

    def __init__(self, level, noise=0.1, steps=5):
        self.level, self.noise, self.steps = level, noise, steps

    def train(self, clients, models, which, seed):
        rng = np.random.default_rng(seed)
        self.round = getattr(self, "round", 0) + 1
        losses = self.level(self.round)[clients][:, None] + self.noise * rng.standard_normal((len(clients), self.steps))
        return Updates(clients, models[which], torch.from_numpy(losses), torch.ones(len(clients)))


def play(engine, n_rounds, **settings):
    algorithm = FedGWC(**{"rate": 1.0, "visits": 10} | settings)
    start = torch.zeros(2, dtype=torch.float64)
    return algorithm, [s for _, s in rounds(algorithm, engine, start, 30, n_rounds, seed=1)]


def levels(apart, spread=0.0):
    """Two groups whose losses lie `apart`, and clients that differ for ever by `spread` besides."""
    own = spread * np.random.default_rng(0).standard_normal(30)
    return lambda t: 1 + apart * GROUP + own


# Sides and variances


def test_sides_by_hand():
    """Losses 1, 2, 3 lie one deviation below, on and above their mean: the normal distribution function at -1, 0, 1."""
    np.testing.assert_allclose(gaussian_sides([[1.0], [2.0], [3.0]]), [0.158655, 0.5, 0.841345], atol=1e-6)
    assert gaussian_sides([[4.0], [4.0], [4.0]]).tolist() == [0.5, 0.5, 0.5]
    two_steps = gaussian_sides([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]])
    np.testing.assert_allclose(two_steps, [0.5] * 3, atol=1e-12)  # above once, below once


@given(st.lists(st.integers(1, 1000), min_size=3, max_size=8, unique=True))
def test_sides_tell_what_rewards_forget(losses):
    """Mirrored losses have the same rewards and mirrored sides."""
    x = np.array(losses)[:, None] / 100
    mirrored = x.max() + x.min() - x
    np.testing.assert_allclose(gaussian_rewards(x), gaussian_rewards(mirrored), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(gaussian_sides(x) + gaussian_sides(mirrored), 1.0, atol=1e-6)
    assert (np.argsort(gaussian_sides(x)) == np.argsort(x[:, 0])).all()


def test_steps_that_were_not_made_do_not_count():
    full = gaussian_sides([[1.0], [2.0], [3.0]])
    ragged = gaussian_sides([[1.0, np.nan], [2.0, np.nan], [3.0, 7.0]])  # one client made a second step
    np.testing.assert_allclose(full, ragged)
    assert loss_variances([[1.0, np.nan], [2.0, np.nan], [3.0, 7.0]]) == (1.0, 0.0)


def test_variances_of_clients_from_one_source_are_equal():
    """F is 1 on average if clients differ by their batches' luck alone, and grows with the square of what sets them apart."""
    rng = np.random.default_rng(0)
    sums = np.zeros((2, 2))
    for _ in range(400):
        batches = rng.standard_normal((10, 7)) + np.linspace(1, 0, 7)  # losses fall from step to step, for all alike
        sums[0] += loss_variances(batches)
        sums[1] += loss_variances(batches + rng.standard_normal((10, 1)))  # between: 1 + 7 steps x 1
    f = sums[:, 0] / sums[:, 1]
    np.testing.assert_allclose(f, [1, 8], rtol=0.08)


def test_losses_near_the_largest_float_are_still_compared():
    exploded = np.array([[1.0], [2.0], [1.7e308]])
    assert gaussian_rewards(exploded)[:2] == pytest.approx(gaussian_rewards(np.array([[0.0], [0.0], [1.0]]))[:2])
    assert gaussian_sides(exploded)[2] > 0.8
    assert np.isfinite(loss_variances(exploded)).all()


def test_sides_add_to_the_distance():
    P, Q = np.random.default_rng(0).random((2, 5, 5))
    both = affinity(P, 0.5, sides=Q)
    np.testing.assert_allclose(both, affinity(P, 0.5) * affinity(Q, 0.5), rtol=1e-12)
    with pytest.raises(InputError, match="the shape of P"):
        affinity(P, 0.5, sides=Q[:4, :4])


# Windows


def attempts(states):
    return [s.clusters[0].attempts for s in states]


def test_two_windows_that_agree_split():
    """Windows of 10 rounds with everybody there: the second one ends in round 20."""
    algorithm, states = play(Spoken(levels(apart=1.0)), 25)
    assert [len(s.clusters) for s in states].index(2) == 19
    assert algorithm.clustering(states[-1]).labels.tolist() == GROUP.tolist()
    [split] = states[19].splits
    assert split.P.shape == split.sides.shape == (30, 30)
    assert set(algorithm.events(states[19])["0"]) == {"P", "sides", "members", "labels"}


def test_clients_that_differ_no_more_than_their_batches_stay_together():
    _, states = play(Spoken(levels(apart=0.0)), 100)
    assert states[-1].splits == ()
    assert states[-1].clusters[0].attempts == 9  # after each window but the first
    assert states[-1].clusters[0].before.contrast < 0.2
    # a lasting difference of a tenth of a batch's noise is found by counting long enough, and is not worth a split
    _, states = play(Spoken(levels(apart=0.0, spread=0.01)), 100, agreement=-1.0)
    assert states[-1].splits == ()
    _, states = play(Spoken(levels(apart=0.0, spread=0.01)), 100, agreement=-1.0, contrast=0.0, settled=False)
    assert states[-1].splits  # what the contrast prevents


def test_windows_that_disagree_do_not_split():
    """Who is hard changes from window to window."""

    def restless(t):
        return 1 + np.random.default_rng(t // 10).permutation(GROUP).astype(float)

    _, states = play(Spoken(restless), 60, settled=False)
    assert states[-1].splits == ()
    _, states = play(Spoken(restless), 60, settled=False, agreement=-1.0)
    assert states[-1].splits


def test_groups_that_still_grow_apart_are_left_alone_until_they_have():
    grows = lambda t: 1 + min(t / 50, 1.0) * GROUP  # noqa: E731
    _, states = play(Spoken(grows), 90)
    first = next(t for t, s in enumerate(states, 1) if s.splits)
    assert first in (70, 80)  # rounds 51-60 are the first window without growth; chance may make one more look larger
    _, hasty = play(Spoken(grows), 90, settled=False)
    assert next(t for t, s in enumerate(hasty, 1) if s.splits) == 20


def test_a_harder_and_an_easier_half_need_the_sides():
    """Two groups of one size lie equally far from the mean: the rewards are the same."""
    half = lambda t: 1 + np.repeat([0.0, 1.0], 15)  # noqa: E731
    algorithm, states = play(Spoken(half), 40)
    assert algorithm.clustering(states[-1]).labels.tolist() == [0] * 15 + [1] * 15
    _, blind = play(Spoken(half), 40, sides=False)
    assert blind[-1].splits == ()


def test_p_is_the_mean_over_its_window():
    _, states = play(Spoken(levels(apart=0.0)), 27)
    last = states[-1].clusters[0]
    assert last.visits.min() == last.visits.max() == 7
    assert last.before.visits.min() == 10
    engine = Spoken(levels(apart=0.0))
    engine.round = 0
    seeds = [Rng(1, t).training for t in range(1, 28)]
    said = [engine.train(np.arange(30), torch.zeros(1, 2), np.zeros(30, int), s).losses.numpy() for s in seeds]
    for seen, span in ((last, said[20:]), (last.before, said[10:20])):
        mean = np.mean([gaussian_rewards(x) for x in span], 0)
        np.testing.assert_allclose(seen.P, np.repeat(mean[:, None], 30, 1), rtol=1e-9)
        mean = np.mean([gaussian_sides(x) for x in span], 0)
        np.testing.assert_allclose(seen.sides, np.repeat(mean[:, None], 30, 1), rtol=1e-9)
        between, within = np.sum([loss_variances(x) for x in span], 0)
        assert (seen.between, seen.within) == pytest.approx((between, within))


def test_two_windows_joined_are_means_over_all_visits():
    a = Window(np.full((2, 2), 0.2), np.full((2, 2), 3), np.zeros((2, 2)), 4.0, 2.0)
    b = Window(np.full((2, 2), 0.8), np.ones((2, 2), int), np.ones((2, 2)), 2.0, 2.0)
    both = joined(a, b)
    np.testing.assert_allclose(both.P, 0.35)
    np.testing.assert_allclose(both.sides, 0.25)
    assert both.visits.tolist() == [[4, 4], [4, 4]]
    assert (a.contrast, b.contrast, both.contrast) == (1.0, 0.0, 0.5)
    unseen = replace(a, visits=np.zeros((2, 2), int), P=np.zeros((2, 2)))
    assert joined(unseen, unseen).P.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_without_losses_rewards_alone_decide():
    """Where clients keep their losses to themselves there are no sides and no variances."""

    class Private(Spoken):
        def train(self, *arguments):
            told = super().train(*arguments)
            rewards = torch.from_numpy(gaussian_rewards(told.losses.numpy()))
            return replace(told, losses=told.losses[:, :0], rewards=rewards)

    _, states = play(Private(lambda t: 1 + np.repeat([0.0, 3.0], [24, 6])), 25)
    assert sorted(len(c.members) for c in states[-1].clusters) == [6, 24]


# States


def test_a_round_leaves_its_state_alone_and_advance_does_not():
    algorithm = FedGWC(rate=1.0)
    engine, state = Spoken(levels(1.0)), algorithm.init(torch.zeros(2, dtype=torch.float64), 30)
    pure = algorithm.round(state, engine, Rng(0, 1))
    assert not state.clusters[0].visits.any()
    engine.round = 0
    reused = algorithm.advance(state, engine, Rng(0, 1))
    assert reused.clusters[0].P is state.clusters[0].P
    np.testing.assert_array_equal(pure.clusters[0].P, reused.clusters[0].P)
    np.testing.assert_array_equal(pure.clusters[0].sides, reused.clusters[0].sides)


def test_a_state_in_its_second_window_is_saved_and_read():
    _, states = play(Spoken(levels(0.0)), 13)
    again = unpack(pack(states[-1]), type(states[-1]))
    a, b = (s.clusters[0] for s in (states[-1], again))
    np.testing.assert_array_equal(a.before.P, b.before.P)
    np.testing.assert_array_equal(a.sides, b.sides)
    assert (a.before.contrast, a.between) == (b.before.contrast, b.between)


@pytest.mark.parametrize(
    "settings",
    [{"step": "constant"}, {"start": "1/K^2"}, {"after_split": "keep"}, {"contrast": -1.0}, {"agreement": 1.5}],
    ids=str,
)
def test_what_windows_cannot_do_is_refused(settings):
    with pytest.raises(InputError, match=r"windows|contrast"):
        FedGWC(**settings)
