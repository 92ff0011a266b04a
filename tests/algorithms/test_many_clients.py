"""Federations too large for pairs: clients are known by their own means, window by window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedgwc.flower.joining import grow
from hypothesis import given
from hypothesis import strategies as st

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.auto.algorithm import FedGWC
from fedgwc.algorithms.auto.readings import gaussian_rewards
from fedgwc.algorithms.auto.windows import mean_if_unseen
from fedgwc.algorithms.perception import perception_distances
from fedgwc.algorithms.spectral import coordinates, principal_axes
from fedgwc.core.errors import InputError
from fedgwc.core.types import Rng, Updates
from fedgwc.io.state_file import nbytes, pack, unpack
from fedgwc.runs.loop import rounds

THREE = np.repeat([0.0, 4.0, 5.0], 10)


class Spoken:
    """Losses around each client's level."""

    def __init__(self, level=THREE):
        self.level = 1 + level

    def train(self, clients, models, which, seed):
        losses = self.level[clients][:, None] + 0.1 * np.random.default_rng(seed).standard_normal((len(clients), 5))
        return Updates(clients, models[which], torch.from_numpy(losses), torch.ones(len(clients)))


class Partly(Spoken):
    """Some clients never answer."""

    def train(self, clients, models, which, seed):
        there = clients >= 6
        return super().train(clients[there], models, which[there], seed)


class Private(Spoken):
    """Clients that tell their rewards alone."""

    def train(self, *arguments):
        told = super().train(*arguments)
        return replace(told, losses=told.losses[:, :0], rewards=torch.from_numpy(gaussian_rewards(told.losses.numpy())))


def play(engine, n_rounds, n_clients=30, **settings):
    """Everybody is there, and divisions that nobody tries."""
    algorithm = FedGWC(**{"rate": 1.0, "pairs_up_to": 0, "second_look": False} | settings)
    start = torch.zeros(2, dtype=torch.float64)
    return algorithm, [s for _, s in rounds(algorithm, engine, start, n_clients, n_rounds, seed=1)]


def divisions(state):
    return [(s.id, s.ended, s.labels.tolist(), s.scores) for s in state.splits]


@pytest.mark.parametrize("engine", [Spoken(), Private(np.repeat([0.0, 3.0], [24, 6]))], ids=["losses", "rewards"])
def test_where_all_are_there_clients_are_divided_as_by_pairs(engine):
    """Everybody's company is the same then. A window lasts for 1 x 10 rounds of a client, or until half have trained 10 times."""
    one, by_client = play(engine, 60)
    _, by_pairs = play(engine, 60, pairs_up_to=30)
    assert not by_client[-1].clusters[0].by_pairs
    assert by_pairs[-1].clusters[0].by_pairs
    assert len(divisions(by_pairs[-1])) >= 1
    for a, b in zip(divisions(by_client[-1]), divisions(by_pairs[-1]), strict=True):
        assert a[:3] == b[:3]
        assert a[3] == pytest.approx(b[3])
    for mine, theirs in zip(by_client[-1].clusters, by_pairs[-1].clusters, strict=True):
        np.testing.assert_allclose(squared(mine.paths), theirs.distances, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(mine.P, theirs.P.diagonal())
    assert one.clustering(by_client[-1]).labels.tolist() == one.clustering(by_pairs[-1]).labels.tolist()


def test_groups_are_found_from_small_cohorts():
    """3 of 60 clients a round: a pair meets once in 600 rounds, a client trains in 30 of them."""
    group = np.repeat([0, 1], [40, 20])
    algorithm, states = play(Spoken(2.0 * group), 900, 60, rate=0.05)
    assert algorithm.clustering(states[-1]).labels.tolist() == group.tolist()


def test_clients_that_differ_no_more_than_their_batches_stay_together():
    _, states = play(Spoken(np.zeros(30)), 200)
    assert states[-1].splits == ()
    assert states[-1].clusters[0].attempts == 19


def test_a_window_is_over_when_half_of_the_clients_were_there_often_enough():
    _, states = play(Spoken(np.zeros(30)), 200, rate=0.3)
    counts = np.cumsum([s.sampled - (states[i - 1].sampled if i else 0) for i, s in enumerate(states)], 0)
    over = next(i for i, s in enumerate(states) if s.clusters[0].paths is not None)
    assert np.median(counts[over]) >= 10 > np.median(counts[over - 1])
    assert not states[over].clusters[0].visits.any()  # the next window begins


def test_who_was_away_stands_in_the_middle():
    means, seen = np.array([0.2, 0.0, 0.6]), np.array([True, False, True])
    assert mean_if_unseen(means, seen).tolist() == [0.2, 0.4, 0.6]
    assert mean_if_unseen(means, ~seen).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("pairs_up_to", [0, 30], ids=["by client", "by pairs"])
def test_clients_that_were_never_there_are_not_a_group(pairs_up_to):
    """Clients in a row differ enough to be divided, and no cut is clear enough to be made twice; six of them are away."""
    row = 1 + np.random.default_rng(0).standard_normal(30)
    _, states = play(Partly(row), 120, pairs_up_to=pairs_up_to)
    assert not any(set(np.flatnonzero(s.labels == y)) <= set(range(6)) for s in states[-1].splits for y in (0, 1))


# Paths and distances


def squared(paths):
    return ((paths[:, None] - paths) ** 2).sum(-1)


def test_paths_are_perception_vectors_of_pairs_that_never_met():
    means = np.random.default_rng(0).random(7)
    np.testing.assert_allclose(perception_distances(np.diag(means), np.eye(7)), squared(means[:, None]), atol=1e-12)


@given(st.integers(2, 30), st.integers(1, 6), st.integers(1, 4), st.integers(0, 5))
def test_principal_axes_are_the_coordinates_of_distances(K, d, n, seed):
    points = np.random.default_rng(seed).standard_normal((K, d)) * 2.0 ** -np.arange(d)
    axes, expected = principal_axes(points, n), coordinates(squared(points), n)
    assert axes.shape == expected.shape
    signs = np.sign((axes * expected).sum(0))
    np.testing.assert_allclose(axes, expected * signs, atol=1e-6)


def test_points_in_one_place_have_no_axes():
    assert principal_axes(np.ones((5, 4)), 3).shape == (5, 0)
    assert principal_axes(np.ones((1, 4)), 3).shape == (1, 0)


# States


def test_nothing_grows_with_the_square_of_the_clients():
    state = FedGWC().init(torch.zeros(1), 200_000)
    assert nbytes(state) < 100 * 200_000
    again = FedGWC(rate=1e-4).advance(state, Spoken(np.zeros(200_000)), Rng(0, 1))
    assert nbytes(again) < 100 * 200_000


def test_a_state_is_left_alone_saved_and_read():
    algorithm, states = play(Spoken(), 19)
    before = pack(states[-1])
    after = algorithm.round(states[-1], Spoken(), Rng(1, 20))
    assert pack(states[-1]) == before
    assert [s.ended for s in after.splits] == [20]
    again = unpack(before, type(states[-1]))
    assert pack(algorithm.advance(again, Spoken(), Rng(1, 20))) == pack(after)


def test_newcomers_stand_in_the_middle():
    _, states = play(Spoken(), 12)
    before, after = states[-1].clusters[0], grow(states[-1], np.zeros(2, np.int64)).clusters[0]
    np.testing.assert_array_equal(after.paths[:30], before.paths)
    np.testing.assert_allclose(after.paths[30:], np.tile(before.paths.mean(0), (2, 1)))
    assert after.visits.tolist() == [*before.visits, 0, 0]


def test_what_decided_is_recorded():
    algorithm, states = play(Spoken(), 60)
    born = next(i for i, s in enumerate(states) if s.splits)
    assert set(algorithm.events(states[born])["0"]) == {"members", "labels", "paths"}
    assert algorithm.events(states[born + 1]) == {}
    for end in algorithm.matrices(states[-1]).values():
        assert set(end) == {"members", "visits", "gamma", "gamma2", "paths"}
        assert {a.shape[0] for a in end.values()} == {len(end["members"])}


# How many are too many


@pytest.mark.parametrize("name", ["fedgwc", "fedgwc-release"])
def test_presets_that_need_pairs_refuse_more_than_fit(name):
    algorithm = ALGORITHMS[name]
    with pytest.raises(InputError, match=r"50,000 clients .*pairs_up_to=20000.* 27\.9 GiB .*pairs_up_to=50000"):
        algorithm.init(torch.zeros(1), 50_000)
    assert algorithm.notes(20_000) == []


def test_the_default_says_what_it_does():
    assert FedGWC().notes(4096) == []
    [note] = FedGWC().notes(4097)
    assert "by client" in note
