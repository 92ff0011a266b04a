"""FeSEM: numbers done in the head on clients that only want to be near a point, then a mixture of label codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedgwc.algorithms.aggregate import Aggregator, Server
from fedgwc.algorithms.fedavg import FedAvg
from fedgwc.algorithms.fesem import FeSEM, FeSEMState, e_step, first_groups
from fedgwc.core.errors import InputError
from fedgwc.core.types import Rng, Updates
from fedgwc.io.state_file import pack, unpack
from fedgwc.metrics.clustering import adjusted_rand_index
from fedgwc.runs.experiment import experiment


class Points:
    """Each client has a point, and training takes it half of the way there; the last entries may be buffers."""

    def __init__(self, points, n_params=None, deaf=()):
        self.points = torch.as_tensor(np.asarray(points, float).reshape(len(points), -1))
        self.n_params, self.deaf, self.starts = n_params, deaf, []

    def train(self, clients, models, which, seed):
        self.starts.append(dict(zip(clients.tolist(), models[which, 0].tolist(), strict=True)))
        local = (models[which] + self.points[clients]) / 2
        updates = Updates(clients, local, torch.zeros(len(clients), 1), torch.ones(len(clients)), self.n_params)
        return updates.rows(np.flatnonzero(~np.isin(clients, self.deaf)))


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def play(algorithm, engine, state, rounds):
    for number in range(1, rounds + 1):
        state = algorithm.round(state, engine, Rng(7, number))
    return state


def test_two_rounds_by_hand():
    algorithm, engine = FeSEM(rate=1, k=2), Points([0, 2, 10, 14])
    state = algorithm.round(algorithm.init(vector(5), 4), engine, Rng(0, 1))
    # local models 2.5, 3.5, 7.5 and 9.5
    assert sorted(float(c.theta) for c in state.centres) == [3, 8.5]
    assert len({*state.labels[:2]}) == len({*state.labels[2:]}) == 1
    state = algorithm.round(state, engine, Rng(0, 2))
    # from their centres: 1.5 and 2.5, 9.25 and 11.25
    assert sorted(float(c.theta) for c in state.centres) == [2, 10.25]


def test_distance_is_over_parameters_alone():
    points = np.array([[0, 900], [2, 0], [10, 900], [14, 0]])
    state = FeSEM(rate=1, k=2).round(FeSEM(rate=1).init(vector(5, 0), 4), Points(points, n_params=1), Rng(0, 1))
    assert state.labels[0] == state.labels[1] != state.labels[2] == state.labels[3]
    assert [float(c.theta[1]) for c in state.centres] == [225, 225]  # the buffer is averaged: (450 + 0) / 2


def test_a_centre_without_clients_stays_and_momentum_is_per_centre():
    algorithm = FeSEM(rate=1, k=3, server=Aggregator(momentum=0.5))
    start = FeSEMState(tuple(Server(vector(x)) for x in (0, 6, 99)), np.array([0, 0, 1]))
    state = algorithm.round(start, Points([-2, -2, 10]), Rng(0, 1))
    assert [float(c.theta) for c in state.centres] == [-1, 8, 99]
    assert [None if c.velocity is None else float(c.velocity) for c in state.centres] == [-1, 2, None]


def test_a_new_client_starts_in_the_middle_and_is_served_by_the_largest_centre():
    algorithm, engine = FeSEM(rate=1, k=2), Points([0, 10, 10, 12])
    start = FeSEMState((Server(vector(0)), Server(vector(10))), np.array([0, 1, 1, -1]))
    assert algorithm.clustering(start).labels.tolist() == [0, 1, 1, 1]
    state = algorithm.round(start, engine, Rng(0, 1))
    assert engine.starts[0] == {0: 0, 1: 10, 2: 10, 3: 5}
    assert state.labels.tolist() == [0, 1, 1, 1]  # (5 + 12) / 2 = 8.5 is nearer to 10


def test_independent_centres_keep_whoever_was_dealt_to_them():
    """Centres at 0 and 100, clients at 45 and 55: half of the way there, a model is still nearer to the centre it came from."""
    algorithm, engine = FeSEM(rate=1, k=2, start="independent"), Points([45, 55] * 50)
    starts = vector(0, 100)[:, None]
    state = algorithm.round(algorithm.init(starts, 100), engine, Rng(0, 1))
    assert [100 * y for y in state.labels] == list(engine.starts[0].values())  # each is where it was dealt
    assert 30 < state.labels.sum() < 70  # at random
    assert play(algorithm, engine, state, 1).labels.tolist() == state.labels.tolist()


def test_independent_centres_are_as_many_as_asked_for():
    assert FeSEM(k=3, start="independent").n_models == 3
    assert FeSEM(k=3).n_models is None
    with pytest.raises(InputError, match=r"fesem with start=independent and k=3 .* wants \[3, D\], got \[2\]"):
        FeSEM(k=3, start="independent").init(vector(1, 2), 9)
    FeSEM(rate=0.1, k=5, start="independent").init(torch.zeros(5, 2), 9)  # no cohort has to hold them all


def test_too_few_answers_keep_the_common_model_for_another_round():
    algorithm, points = FeSEM(rate=1, k=3), [0, 4, 8, 9]
    state = algorithm.round(algorithm.init(vector(0), 4), Points(points, deaf=[2, 3]), Rng(0, 1))
    assert [float(c.theta) for c in state.centres] == [1]  # (0 + 2) / 2
    assert algorithm.clustering(state).labels.tolist() == [0] * 4
    assert len(algorithm.round(state, Points(points), Rng(0, 2)).centres) == 3
    assert first_groups(torch.zeros(5, 2), 2) is None  # five times the same model


def test_e_step_agrees_with_distances():
    torch.manual_seed(0)
    points, centres = 1000 + torch.randn(50, 20), 1000 + torch.randn(4, 20)
    assert e_step(points, centres).tolist() == torch.cdist(points.double(), centres.double()).argmin(1).tolist()


def test_a_centre_that_exploded_keeps_its_clients_and_leaves_the_others_theirs():
    centres = torch.tensor([[0.0], [1.0], [1e30]])
    assert e_step(torch.tensor([[0.1], [0.9], [1.2], [1.1e30]]), centres).tolist() == [0, 1, 1, 2]


def test_a_client_that_fails_is_a_missing_row():
    algorithm, points = FeSEM(rate=0.5, k=2), [0, 1, 2, 3, 7, 8, 9, 10]

    class Without(Points):  # a federation in which clients 3 and 6 are never even asked
        def train(self, clients, models, which, seed):
            up = ~np.isin(clients, [3, 6])
            return super().train(clients[up], models, which[up], seed)

    start = algorithm.init(vector(5), 8)
    lost = play(algorithm, Points(points, deaf=[3, 6]), start, 6)
    assert pack(lost) == pack(play(algorithm, Without(points), start, 6))
    assert lost.labels[[3, 6]].tolist() == [-1, -1]
    assert pack(play(algorithm, Points(points, deaf=range(8)), start, 3)) == pack(start)


@pytest.mark.parametrize("rounds", [0, 4])
def test_a_state_is_saved_whole(rounds):
    algorithm = FeSEM(rate=0.5, k=2, server=Aggregator(momentum=0.9))
    state = play(algorithm, Points([0, 1, 2, 3, 7, 8, 9, 10]), algorithm.init(vector(5), 8), rounds)
    assert pack(unpack(pack(state), FeSEMState)) == pack(state)


def test_settings_are_checked():
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        FeSEM(k=0)
    with pytest.raises(InputError, match="cohorts of 3; lower k or raise rate"):
        FeSEM(k=4).init(vector(0), 20)


MIXTURE = {
    "data": {"name": "digits", "train_size": 50, "test_size": 20, "groups": [{"clients": 10}, {"clients": 10, "relabel": 5}]},
    "model": {"name": "mlp", "hidden": [32]},
    "local": {"steps": 10, "batch": 16, "lr": 0.1},
}


class Recorded:
    """An engine that remembers what it answered last."""

    def __init__(self, engine):
        self.engine, self.last = engine, None

    def train(self, *args):
        self.last = self.engine.train(*args)
        return self.last


@pytest.fixture(scope="module", params=[0, 1, 2])
def mixture(request):
    torch.set_num_threads(1)
    job = experiment({**MIXTURE, "seed": request.param})
    federation = job.federation()
    return federation, job.simulator(federation), request.param


def accuracy(mixture, algorithm, rounds):
    """(test accuracy, adjusted Rand index) after so many rounds."""
    federation, engine, seed = mixture
    state = algorithm.init(engine.model.vector(), federation.n_clients)
    for number in range(1, rounds + 1):
        state = algorithm.round(state, engine, Rng(seed, number))
    c = algorithm.clustering(state)
    scores = engine.evaluate(np.arange(federation.n_clients), c.models, c.labels)
    return scores.correct.sum() / scores.total.sum(), adjusted_rand_index(federation.groups, c.labels)


def test_one_centre_is_fedavg(mixture):
    assert accuracy(mixture, FeSEM(rate=0.3, k=1), 5) == accuracy(mixture, FedAvg(rate=0.3), 5)


@pytest.mark.parametrize(("rate", "rounds"), [(1.0, 20), (0.3, 60)])
def test_two_centres_beat_one_on_a_mixture(mixture, rate, rounds):
    two, ari = accuracy(mixture, FeSEM(rate=rate, k=2), rounds)
    assert ari == 1.0
    assert two > accuracy(mixture, FeSEM(rate=rate, k=1), rounds)[0] + 0.3


def test_the_objective_never_rises_in_a_round_of_everybody(mixture):
    """Sum of squared distances of the local models to their centres: before the E-step, after it, after the M-step."""
    federation, engine, seed = mixture
    watched, algorithm = Recorded(engine), FeSEM(rate=1, k=3)
    state = algorithm.round(algorithm.init(engine.model.vector(), federation.n_clients), watched, Rng(seed, 1))
    # Ward's groups are so good that nobody would ever move again: begin from random ones instead.
    state = replace(state, labels=np.random.default_rng(seed).integers(0, 3, federation.n_clients))
    moved = 0
    for number in range(2, 13):
        before, state = state, algorithm.round(state, watched, Rng(seed, number))
        stages = [(before.centres, before.labels), (before.centres, state.labels), (state.centres, state.labels)]
        start, e, m = [objective(watched.last.models, *stage) for stage in stages]
        assert start >= e >= m * (1 - 1e-6)
        moved += int((before.labels != state.labels).sum())
    assert moved


def objective(models, centres, labels):
    return float((models - torch.stack([c.theta for c in centres])[labels]).double().square().sum())
