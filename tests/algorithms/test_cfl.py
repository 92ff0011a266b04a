"""CFL: numbers done in the head on clients that pull towards a point, then its own paper's permuted labels."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedgwc.algorithms.aggregate import Aggregator
from fedgwc.algorithms.cfl import CFL, CFLState, bipartition, cosines, sketched
from fedgwc.algorithms.fedavg import OneGroup
from fedgwc.algorithms.method import Method, MethodState
from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids, Rng, Updates
from fedgwc.core.work import Work
from fedgwc.io.state_file import pack
from fedgwc.metrics.clustering import adjusted_rand_index
from fedgwc.runs.experiment import experiment

from . import clients
from .clients import begin, vector


class Points(clients.Clients):
    """Each client has a point in the plane, and training takes it half of the way there."""

    def __init__(self, points: Any, **more: Any) -> None:
        super().__init__(points, reach=0.5, **more)


ORIGIN = vector(0, 0)
CORNERS = np.array([[6, 2], [-6, 2], [6, -2], [-6, -2]] * 3)  # 12 clients, client i in group i mod 4


State = MethodState[CFLState]


def cfl(rate: float = 1.0, **settings: Any) -> Method[CFLState]:
    """Build CFL with lengths as such, as public code has them."""
    return Method(CFL(**{"eps1": 0.4, "eps2": 1.6, "lengths": "absolute", **settings}), rate)


def play(method: Method[CFLState], engine: clients.Clients, n_clients: int, n_rounds: int, start: Tensor = ORIGIN) -> State:
    last: State = clients.play(method, engine, begin(method, start, n_clients), n_rounds)[-1]
    return last


def members(state: State) -> list[list[int]]:
    return [c.members.tolist() for c in state.groups.clusters]


# The cut


def test_the_cut_crosses_the_smallest_similarity_there_is() -> None:
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


def test_cut_by_hand() -> None:
    S = np.array([[1, 0.9, 0.1, 0], [0.9, 1, 0.2, 0.1], [0.1, 0.2, 1, 0.8], [0, 0.1, 0.8, 1]])
    sides, crossing = bipartition(S)
    assert sides.tolist() == [0, 0, 1, 1]
    assert crossing == pytest.approx(0.2)


def test_an_update_of_length_zero_is_no_obstacle() -> None:
    assert cosines(torch.tensor([[0.0, 0.0], [1.0, 0.0], [-2.0, 0.0]])).tolist() == [[0, 0, 0], [0, 1, -1], [0, -1, 1]]


# The criteria


def test_clients_that_pull_apart_are_split() -> None:
    """Pulls (3, 0) and (-3, 0): the mean is 0, the longest 3."""
    engine = Points([[6, 0], [-6, 0]] * 3)
    state = play(cfl(), engine, 6, 1)
    assert members(state) == [[0, 2, 4], [1, 3, 5]]
    assert [s.theta.tolist() for s in state.servers] == [[3, 0], [-3, 0]]  # each side keeps its own mean
    assert [(s.ended, s.cross_similarity) for s in state.groups.splits] == [(1, -1)]
    assert not state.groups.known.weights.any()


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
def test_otherwise_nothing_is_split(settings: dict[str, Any], points: list[list[float]]) -> None:
    state = play(cfl(**settings), Points(points), 6, 1)
    assert len(state.servers) == 1
    assert state.servers[0].theta.tolist() == pytest.approx(np.mean(points, 0) / 2)


def test_relative_thresholds_are_shares_of_the_longest_update_seen() -> None:
    """Everybody pulls by 4, then 2 one way and 2 the other: mean 0; 2 is half of 4."""
    for eps2, clusters in ((0.6, 1), (0.4, 2)):
        method = Method(CFL(eps1=0.1, eps2=eps2), 1.0)
        together, apart = Points([[8, 0]] * 6), Points([[8, 0], [0, 0]] * 3)
        state = method.round(begin(method, ORIGIN, 6), together, Rng(0, 1))
        assert state.groups.clusters[0].longest == 4
        state = method.round(state, apart, Rng(0, 2))
        assert len(state.servers) == clusters


@pytest.mark.parametrize("unit", [0.01, 1.0, 100.0])
def test_a_unit_of_length_changes_nothing(unit: float) -> None:
    state = play(Method(CFL(eps1=0.1, eps2=0.2, min_size=1), 1.0), Points(unit * CORNERS), 12, 12)
    assert sorted(members(state)) == [[i, i + 4, i + 8] for i in range(4)]


def test_members_stay_numbers_of_the_whole_federation_after_the_second_split() -> None:
    """Corners of a rectangle: first left from right, then top from bottom. Public code loses track of who is who here."""
    algorithm = cfl(eps1=0.1, eps2=0.5, min_size=1)
    state = play(algorithm, Points(CORNERS), 12, 12)
    assert sorted(members(state)) == [[i, i + 4, i + 8] for i in range(4)]
    c = algorithm.clustering(state)
    served = c.models[c.labels].numpy()
    assert np.abs(served - CORNERS).max() < 0.1
    assert sorted(c.numbers) == [3, 4, 5, 6]
    tree = algorithm.tree(state)
    assert [(n["id"], n["parent"]) for n in tree] == [(0, None), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]
    assert [n["ended"] is None for n in tree] == [False] * 3 + [True] * 4


def test_momentum_passes_to_both_sides() -> None:
    algorithm = replace(cfl(), server=Aggregator(momentum=0.5))
    state = play(algorithm, Points([[6, 0], [-6, 0]] * 3), 6, 1)
    assert [None if s.velocity is None else s.velocity.tolist() for s in state.servers] == [[3, 0], [-3, 0]]


def test_buffers_do_not_pull() -> None:
    points = np.array([[6, 0], [6, 99]] * 3)
    assert len(members(play(cfl(), Points(points, n_params=1), 6, 1))) == 1


# Who takes part


def test_a_split_waits_until_members_are_known_and_the_unknown_follow_the_larger_side() -> None:
    points = [[6, 0]] * 3 + [[-6, 0]] * 4
    eps1 = 0.6
    assert len(members(play(cfl(eps1=eps1), Points(points, deaf=[6]), 7, 3))) == 1  # 6 of 7 are fewer than 90 %
    state = play(cfl(seen=0.8, eps1=eps1), Points([*points, [6, 0]], deaf=[7]), 8, 1)
    assert members(state) == [[0, 1, 2], [3, 4, 5, 6, 7]]


def test_it_samples_the_clients_that_fedavg_samples() -> None:
    mine, theirs = Points(np.zeros((30, 2))), Points(np.zeros((30, 2)))
    for method, engine in ((Method(CFL(), 0.2), mine), (Method(OneGroup(), 0.2), theirs)):
        method.round(begin(method, ORIGIN, 30), engine, Rng(3, 4))
    assert mine.trained[0][0].tolist() == theirs.trained[0][0].tolist()


class Without(Points):
    """A federation in which client 5 is never even asked."""

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        up = clients != 5
        return super().train(clients[up], models, which[up], seed, work)


def test_a_client_that_fails_is_a_missing_row() -> None:
    algorithm = cfl(rate=0.5, eps1=0.5, eps2=0.5, min_size=1)
    lost = play(algorithm, Points(CORNERS, deaf=[5]), 12, 20)
    assert pack(lost) == pack(play(algorithm, Without(CORNERS), 12, 20))
    assert len(lost.servers) > 1


def test_settings_are_checked() -> None:
    wrongs: list[dict[str, Any]] = [
        *({"eps1": 0}, {"eps2": -1}, {"gamma": 1}, {"seen": 0}),
        *({"min_size": 0}, {"sketch": 0}, {"memory_mb": -1}),
    ]
    for wrong in wrongs:
        with pytest.raises(InputError, match=rf"{next(iter(wrong))}.*, got .*{next(iter(wrong.values()))}"):
            CFL(**wrong)
    with pytest.raises(InputError, match=r"below 1, got 0\.4 and 1\.6; lengths=absolute"):
        CFL(eps1=0.4, eps2=1.6)


# Sketches


@pytest.mark.parametrize("d", [256, 1024, 4096])
@pytest.mark.parametrize("true", [0.0, 0.6])
def test_a_sketch_keeps_cosines_to_about_one_over_root_d(d: int, true: float) -> None:
    """Pairs of random directions at a known cosine: the error's standard deviation is (1 - cos^2) / sqrt(d), its mean 0."""
    rng = np.random.default_rng(d)
    errors: list[float] = []
    for seed in range(6):
        x, noise = rng.normal(size=(2, 30, 20_000))
        pairs = torch.from_numpy(np.stack([x, true * x + np.sqrt(1 - true**2) * noise], 1).reshape(60, -1))
        small = sketched(pairs, d, seed)
        assert small.shape == (60, d)
        off = cosines(small) - cosines(pairs)
        errors += off[np.arange(0, 60, 2), np.arange(1, 60, 2)].tolist()
    assert np.std(errors) == pytest.approx((1 - true**2) / np.sqrt(d), rel=0.25)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(len(errors))


def test_updates_are_sketched_only_where_they_do_not_fit() -> None:
    points = np.random.default_rng(0).normal(size=(6, 50))
    start = torch.zeros(50, dtype=torch.float64)
    assert play(cfl(), Points(points), 6, 1, start).groups.known.updates.shape == (6, 50)
    assert play(cfl(memory_mb=0, sketch=20), Points(points), 6, 1, start).groups.known.updates.shape == (6, 20)
    assert play(cfl(memory_mb=0, sketch=60), Points(points), 6, 1, start).groups.known.updates.shape == (6, 50)


# Its own paper's experiment, on digits

LOCAL = {"steps": 10, "batch": 50, "lr": 0.1}


def permuted(shifts: list[int], seed: int = 0, rate: float = 1.0, **settings: Any) -> tuple[float | None, float, State]:
    """Train 20 clients, in as many groups as there are label shifts: (adjusted Rand or None, accuracy, state)."""
    torch.set_num_threads(1)
    groups = [{"clients": 20 // len(shifts), "relabel": s} for s in shifts]
    data = {"name": "digits", "train_size": 50, "test_size": 15, "groups": groups, "validation": 0, "newcomers": 0}
    job = experiment({"data": data, "model": {"name": "mlp", "hidden": [32]}, "local": LOCAL, "seed": seed})
    federation = job.federation()
    engine = job.simulator(federation)
    algorithm = Method(CFL(**settings), rate)
    state = begin(algorithm, engine.model.vector(), 20)
    for number in range(1, 121):
        state = algorithm.round(state, engine, Rng(seed, number))
    c = algorithm.clustering(state)
    scores = engine.evaluate(np.arange(20), c.models, c.labels)
    ari = None if federation.groups is None else adjusted_rand_index(federation.groups, c.labels)
    return ari, float(scores.correct.sum() / scores.total.sum()), state


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rate", [1.0, 0.3])
class TestPermutedLabels:
    def test_groups_are_found(self, rate: float, seed: int) -> None:
        for shifts in ([0, 5], [0, 1, 2, 3]):
            ari, accuracy, state = permuted(shifts, seed, rate=rate)
            assert (ari, len(state.servers)) == (1.0, len(shifts))
            assert accuracy > 0.9  # 0.45 with one model for two groups, 0.27 for four

    def test_homogeneous_clients_stay_together(self, rate: float, seed: int) -> None:
        _, accuracy, state = permuted([0], seed, rate=rate)
        assert len(state.servers) == 1
        assert accuracy > 0.9


def test_what_fitted_whole_is_sketched_when_too_many_have_joined() -> None:
    """6 clients of 20,000 numbers of 8 bytes are less than a MiB, 8 are more."""
    points = np.random.default_rng(0).standard_normal((8, 20_000))
    algorithm = cfl(memory_mb=1, sketch=20)
    before = play(algorithm, Points(points[:6]), 6, 1, torch.zeros(20_000, dtype=torch.float64))
    assert before.groups.known.updates.shape == (6, 20_000)
    after = algorithm.round(algorithm.grow(before, np.array([0, 0])), Points(points, deaf=[0, 1, 2]), Rng(0, 2))
    assert after.groups.known.updates.shape == (8, 20)
    assert torch.equal(
        after.groups.known.updates[:3], sketched(before.groups.known.updates[:3], 20, 0)
    )  # they did not answer again


def test_groups_are_found_from_sketches() -> None:
    assert permuted([0, 1, 2, 3], rate=1.0, memory_mb=0, sketch=512)[0] == 1.0
