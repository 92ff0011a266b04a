"""CFL: numbers done in the head on clients that pull towards a point, then its own paper's permuted labels."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from fedgwc.flower.joining import grow

from fedgwc.algorithms.aggregate import Aggregator
from fedgwc.algorithms.cfl import CFL, CFLState, bipartition, cosines, sketched
from fedgwc.algorithms.fedavg import FedAvg
from fedgwc.core.errors import InputError
from fedgwc.core.types import Rng, Updates
from fedgwc.io.state_file import pack, unpack
from fedgwc.metrics.clustering import adjusted_rand_index
from fedgwc.runs.experiment import experiment


class Points:
    """Each client has a point in the plane, and training takes it half of the way there."""

    def __init__(self, points, deaf=(), n_params=None):
        self.points = torch.as_tensor(np.asarray(points, float))
        self.deaf, self.n_params, self.asked = deaf, n_params, []

    def train(self, clients, models, which, seed):
        self.asked.append(clients)
        local = (models[which] + self.points[clients]) / 2
        updates = Updates(clients, local, torch.zeros(len(clients), 1), torch.ones(len(clients)), self.n_params)
        return updates.rows(np.flatnonzero(~np.isin(clients, self.deaf)))


ORIGIN = torch.zeros(2, dtype=torch.float64)
CORNERS = np.array([[6, 2], [-6, 2], [6, -2], [-6, -2]] * 3)  # 12 clients, client i in group i mod 4


def play(algorithm, engine, n_clients, rounds, start=ORIGIN):
    state = algorithm.init(start, n_clients)
    for number in range(1, rounds + 1):
        state = algorithm.round(state, engine, Rng(7, number))
    return state


# The cut


def test_the_cut_crosses_the_smallest_similarity_there_is():
    """Single linkage against all 2^6 - 1 cuts; complete linkage, which public code uses, is sometimes beaten."""
    rng = np.random.default_rng(0)
    worse = 0
    for _ in range(50):
        S = cosines(torch.from_numpy(rng.normal(size=(7, 3))))
        cuts = [list(side) for n in range(1, 7) for side in combinations(range(7), n)]
        best = min(S[np.ix_(side, [i for i in range(7) if i not in side])].max() for side in cuts)
        assert bipartition(S)[1] == pytest.approx(best)
        worse += bipartition(S, "complete")[1] > best + 1e-9
    assert worse > 0


def test_cut_by_hand():
    S = np.array([[1, 0.9, 0.1, 0], [0.9, 1, 0.2, 0.1], [0.1, 0.2, 1, 0.8], [0, 0.1, 0.8, 1]])
    sides, crossing = bipartition(S)
    assert (sides.tolist(), crossing) == ([0, 0, 1, 1], pytest.approx(0.2))


def test_an_update_of_length_zero_is_no_obstacle():
    assert cosines(torch.tensor([[0.0, 0.0], [1.0, 0.0], [-2.0, 0.0]])).tolist() == [[0, 0, 0], [0, 1, -1], [0, -1, 1]]


# The criteria


def test_clients_that_pull_apart_are_split():
    """Pulls (3, 0) and (-3, 0): the mean is 0, the longest 3."""
    engine = Points([[6, 0], [-6, 0]] * 3)
    state = play(CFL(rate=1), engine, 6, 1)
    assert [c.members.tolist() for c in state.clusters] == [[0, 2, 4], [1, 3, 5]]
    assert [c.server.theta.tolist() for c in state.clusters] == [[3, 0], [-3, 0]]  # each side keeps its own mean
    assert (state.splits[0].ended, state.splits[0].cross_similarity) == (1, -1)
    assert not state.known.weights.any()


@pytest.mark.parametrize(
    ("settings", "points"),
    [
        ({}, [[6, 0]] * 6),  # everybody pulls the same way: the mean update is as long as each
        ({"eps2": 3.1}, [[6, 0], [-6, 0]] * 3),  # nobody pulls hard enough
        ({}, [[6, 0], [-6, 0], [-6, 0]] * 2),  # mean (-1, 0): not standing still yet
        ({"min_size": 4}, [[6, 0], [-6, 0]] * 3),
        ({"gamma": 0.5, "eps1": 9}, [[6, 1], [6, -1]] * 3),  # the cosine across is 35/37: sqrt((1 - 35/37) / 2) = 0.16
    ],
)
def test_otherwise_nothing_is_split(settings, points):
    state = play(CFL(rate=1, **settings), Points(points), 6, 1)
    assert len(state.clusters) == 1
    assert state.clusters[0].server.theta.tolist() == pytest.approx(np.mean(points, 0) / 2)


def test_members_stay_numbers_of_the_whole_federation_after_the_second_split():
    """Corners of a rectangle: first left from right, then top from bottom. Public code loses track of who is who here."""
    algorithm = CFL(rate=1, eps1=0.1, eps2=0.5, min_size=1)
    state = play(algorithm, Points(CORNERS), 12, 12)
    assert sorted(c.members.tolist() for c in state.clusters) == [[i, i + 4, i + 8] for i in range(4)]
    c = algorithm.clustering(state)
    served = c.models[c.labels].numpy()
    assert np.abs(served - CORNERS).max() < 0.1
    assert sorted(c.names) == [3, 4, 5, 6]
    tree = algorithm.tree(state)
    assert [(n["id"], n["parent"]) for n in tree] == [(0, None), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]
    assert [n["ended"] is None for n in tree] == [False] * 3 + [True] * 4


def test_momentum_passes_to_both_sides():
    algorithm = CFL(rate=1, server=Aggregator(momentum=0.5))
    state = play(algorithm, Points([[6, 0], [-6, 0]] * 3), 6, 1)
    assert [c.server.velocity.tolist() for c in state.clusters] == [[3, 0], [-3, 0]]


def test_buffers_do_not_pull():
    points = np.array([[6, 0], [6, 99]] * 3)
    assert len(play(CFL(rate=1), Points(points, n_params=1), 6, 1).clusters) == 1


# Who takes part


def test_a_split_waits_until_members_are_known_and_the_unknown_follow_the_larger_side():
    points = [[6, 0]] * 3 + [[-6, 0]] * 4
    settings = {"rate": 1, "eps1": 0.6}
    assert len(play(CFL(**settings), Points(points, deaf=[6]), 7, 3).clusters) == 1  # 6 of 7 are fewer than 90 %
    state = play(CFL(seen=0.8, **settings), Points([*points, [6, 0]], deaf=[7]), 8, 1)
    assert [c.members.tolist() for c in state.clusters] == [[0, 1, 2], [3, 4, 5, 6, 7]]


def test_it_samples_the_clients_that_fedavg_samples():
    mine, theirs = Points(np.zeros((30, 2))), Points(np.zeros((30, 2)))
    CFL(rate=0.2).round(CFL().init(ORIGIN, 30), mine, Rng(3, 4))
    FedAvg(rate=0.2).round(FedAvg().init(ORIGIN, 30), theirs, Rng(3, 4))
    assert mine.asked[0].tolist() == theirs.asked[0].tolist()


def test_a_client_that_fails_is_a_missing_row():
    class Without(Points):  # a federation in which client 5 is never even asked
        def train(self, clients, models, which, seed):
            up = clients != 5
            return super().train(clients[up], models, which[up], seed)

    algorithm = CFL(rate=0.5, eps1=0.5, eps2=0.5, min_size=1)
    lost = play(algorithm, Points(CORNERS, deaf=[5]), 12, 20)
    assert pack(lost) == pack(play(algorithm, Without(CORNERS), 12, 20))
    assert len(lost.clusters) > 1
    assert pack(play(algorithm, Points(CORNERS, deaf=range(12)), 12, 3)) == pack(algorithm.init(ORIGIN, 12))


@pytest.mark.parametrize("rounds", [0, 1, 12])
def test_a_state_is_saved_whole(rounds):
    state = play(CFL(rate=1, eps1=0.1, eps2=0.5, min_size=1), Points(CORNERS), 12, rounds)
    assert pack(unpack(pack(state), CFLState)) == pack(state)


def test_a_round_leaves_its_state_alone_and_advance_does_not():
    algorithm, engine = CFL(rate=0.5, min_size=1), Points(CORNERS)
    state = pure = reused = algorithm.init(ORIGIN, 12)
    for number in range(1, 21):
        before = pack(pure)
        state, pure = pure, algorithm.round(pure, engine, Rng(7, number))
        assert pack(state) == before
        known, reused = reused.known, algorithm.advance(reused, engine, Rng(7, number))
        assert reused.known.updates is known.updates or not known.updates.numel()
        assert pack(reused) == pack(pure)
    assert len(pure.clusters) > 1


def test_settings_are_checked():
    for wrong in ({"eps1": 0}, {"eps2": -1}, {"gamma": 1}, {"seen": 0}, {"min_size": 0}, {"sketch": 0}, {"memory_mb": -1}):
        with pytest.raises(InputError, match=rf"{next(iter(wrong))}.*, got .*{next(iter(wrong.values()))}"):
            CFL(**wrong)


# Sketches


@pytest.mark.parametrize("d", [256, 1024, 4096])
@pytest.mark.parametrize("true", [0.0, 0.6])
def test_a_sketch_keeps_cosines_to_about_one_over_root_d(d, true):
    """Pairs of random directions at a known cosine: the error's standard deviation is (1 - cos^2) / sqrt(d), its mean 0."""
    rng = np.random.default_rng(d)
    errors = []
    for seed in range(6):
        x, noise = rng.normal(size=(2, 30, 20_000))
        pairs = torch.from_numpy(np.stack([x, true * x + np.sqrt(1 - true**2) * noise], 1).reshape(60, -1))
        small = sketched(pairs, d, seed)
        assert small.shape == (60, d)
        off = cosines(small) - cosines(pairs)
        errors += off[np.arange(0, 60, 2), np.arange(1, 60, 2)].tolist()
    assert np.std(errors) == pytest.approx((1 - true**2) / np.sqrt(d), rel=0.25)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(len(errors))


def test_updates_are_sketched_only_where_they_do_not_fit():
    points = np.random.default_rng(0).normal(size=(6, 50))
    start = torch.zeros(50, dtype=torch.float64)
    assert play(CFL(rate=1), Points(points), 6, 1, start).known.updates.shape == (6, 50)
    assert play(CFL(rate=1, memory_mb=0, sketch=20), Points(points), 6, 1, start).known.updates.shape == (6, 20)
    assert play(CFL(rate=1, memory_mb=0, sketch=60), Points(points), 6, 1, start).known.updates.shape == (6, 50)


# Its own paper's experiment, on digits

LOCAL = {"steps": 10, "batch": 50, "lr": 0.1}


def permuted(shifts, seed=0, **settings):
    """20 clients in as many groups as there are label shifts: (adjusted Rand or None, accuracy, state)."""
    torch.set_num_threads(1)
    groups = [{"clients": 20 // len(shifts), "relabel": s} for s in shifts]
    data = {"name": "digits", "train_size": 50, "test_size": 15, "groups": groups}
    job = experiment({"data": data, "model": {"name": "mlp", "hidden": [32]}, "local": LOCAL, "seed": seed})
    federation = job.federation()
    engine = job.simulator(federation)
    algorithm = CFL(eps1=0.1, eps2=0.5, **settings)
    state = algorithm.init(engine.model.vector(), 20)
    for number in range(1, 121):
        state = algorithm.round(state, engine, Rng(seed, number))
    c = algorithm.clustering(state)
    scores = engine.evaluate(np.arange(20), c.models, c.labels)
    ari = None if federation.groups is None else adjusted_rand_index(federation.groups, c.labels)
    return ari, scores.correct.sum() / scores.total.sum(), state


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rate", [1.0, 0.3])
class TestPermutedLabels:
    def test_groups_are_found(self, rate, seed):
        for shifts in ([0, 5], [0, 1, 2, 3]):
            ari, accuracy, state = permuted(shifts, seed, rate=rate)
            assert (ari, len(state.clusters)) == (1.0, len(shifts))
            assert accuracy > 0.9  # 0.45 with one model for two groups, 0.27 for four

    def test_homogeneous_clients_stay_together(self, rate, seed):
        _, accuracy, state = permuted([0], seed, rate=rate)
        assert len(state.clusters) == 1
        assert accuracy > 0.9


def test_what_fitted_whole_is_sketched_when_too_many_have_joined():
    """6 clients of 20,000 numbers of 8 bytes are less than a MiB, 8 are more."""
    points = np.random.default_rng(0).standard_normal((8, 20_000))
    algorithm = CFL(rate=1, memory_mb=1, sketch=20)
    before = play(algorithm, Points(points[:6]), 6, 1, torch.zeros(20_000, dtype=torch.float64))
    assert before.known.updates.shape == (6, 20_000)
    after = algorithm.round(grow(before, np.array([0, 0])), Points(points, deaf=[0, 1, 2]), Rng(0, 2))
    assert after.known.updates.shape == (8, 20)
    assert torch.equal(after.known.updates[:3], sketched(before.known.updates[:3], 20, 0))  # they did not answer again


def test_groups_are_found_from_sketches():
    assert permuted([0, 1, 2, 3], rate=1.0, memory_mb=0, sketch=512)[0] == 1.0
