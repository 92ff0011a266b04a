"""IFCA: numbers done in the head on clients that only want to be near a point, then its own paper's rotated images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedgwc.algorithms.aggregate import Aggregator
from fedgwc.algorithms.fedavg import FedAvg
from fedgwc.algorithms.ifca import IFCA, IFCAState
from fedgwc.core.errors import InputError
from fedgwc.core.sampling import cohort_size, sample
from fedgwc.core.types import Rng, Scores, Updates
from fedgwc.io.state_file import pack, unpack
from fedgwc.metrics.clustering import adjusted_rand_index
from fedgwc.runs.experiment import experiment


class Points:
    """Clients on a line: each one's loss is its squared distance from its point, and training takes it there."""

    def __init__(self, points, sizes=None, deaf=(), silent=()):
        self.points = torch.tensor(points, dtype=torch.float64)
        self.sizes = torch.tensor(sizes or [1] * len(points))
        self.deaf, self.silent, self.asked = deaf, silent, []  # deaf: fails when asked; silent: trains, but is never heard of

    def train(self, clients, models, which, seed):
        updates = Updates(clients, self.points[clients, None], torch.zeros(len(clients), 1), self.sizes[clients])
        return updates.rows(np.flatnonzero(~np.isin(clients, [*self.deaf, *self.silent])))

    def evaluate(self, clients, models, which, split="test"):
        self.asked.append((clients, which, split))
        loss = (models[which, 0] - self.points[clients]).square().numpy()
        up = ~np.isin(clients, self.deaf)
        none = np.zeros((up.sum(), 1))
        return Scores(clients[up], loss[up], none, none)


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_each_client_trains_the_model_that_fits_it_best():
    engine = Points([1, 2, 9], sizes=[1, 3, 1])
    algorithm = IFCA(rate=1, k=2)
    state = algorithm.round(algorithm.init(column(0, 10), 3), engine, Rng(0, 1))
    assert state.labels.tolist() == [0, 0, 1]
    assert [float(s.theta) for s in state.servers] == [1.75, 9]  # (1 * 1 + 3 * 2) / 4
    clients, which, split = engine.asked[0]
    assert len(engine.asked) == 1  # all k questions to all clients in one exchange
    assert (clients.tolist(), which.tolist(), split) == ([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], "train")


def test_a_model_that_nobody_chose_stays_and_a_diverged_one_is_never_chosen():
    algorithm = IFCA(rate=1, k=3)
    state = algorithm.round(algorithm.init(column(0, 100, np.nan), 3), Points([1, 2, 3]), Rng(0, 1))
    assert state.labels.tolist() == [0, 0, 0]
    assert float(state.servers[1].theta) == 100


def test_momentum_is_kept_per_model():
    algorithm = IFCA(rate=1, k=2, server=Aggregator(momentum=0.5))
    state = algorithm.round(algorithm.init(column(0, 10), 3), Points([1, 1, 9]), Rng(0, 1))
    assert [float(s.velocity) for s in state.servers] == [1, -1]


def test_a_client_that_never_took_part_gets_the_most_chosen_model():
    algorithm = IFCA(k=3)
    state = IFCAState(algorithm.init(column(0, 1, 2), 6).servers, np.array([-1, 2, 1, 2, -1, 0]))
    assert algorithm.clustering(state).labels.tolist() == [2, 2, 1, 2, 2, 0]
    assert algorithm.clustering(algorithm.init(column(0, 1, 2), 6)).labels.tolist() == [0] * 6


class StoodIn(Points):
    """Over Flower another client of the same model may answer in an absent one's place: here always the last."""

    def train(self, clients, models, which, seed):
        updates = super().train(clients, models, which, seed)
        return replace(updates, clients=np.append(updates.clients[:-1], len(self.points) - 1))


def test_who_stands_in_and_never_chose_counts_for_the_most_chosen_model():
    algorithm = IFCA(rate=0.1, k=2)
    start = replace(algorithm.init(column(0, 10), 40), labels=np.repeat([0, 1, -1], [10, 20, 10]))
    state = algorithm.round(start, StoodIn([9.0] * 40), Rng(0, 1))
    assert [float(s.theta) for s in state.servers] == [0, 9]
    assert state.labels[-1] == -1  # it has not chosen


def play(algorithm, engine, state, rounds=5):
    for number in range(1, rounds + 1):
        state = algorithm.round(state, engine, Rng(7, number))
    return state


def test_a_client_that_fails_is_a_missing_row():
    algorithm, points = IFCA(rate=0.5, k=2), [0, 1, 2, 3, 7, 8, 9, 10]
    start = algorithm.init(column(2, 8), 8)
    lost = play(algorithm, Points(points, silent=[3, 6]), start)
    assert pack(lost) == pack(play(algorithm, Points(points, deaf=[3, 6]), start))
    assert lost.labels[[3, 6]].tolist() == [-1, -1]
    assert pack(play(algorithm, Points(points, deaf=range(8)), start)) == pack(start)
    assert pack(play(algorithm, Points(points, silent=range(8)), start)) == pack(start)


def test_a_state_is_saved_whole():
    algorithm = IFCA(rate=0.5, k=2, server=Aggregator(momentum=0.9))
    state = play(algorithm, Points([0, 1, 2, 3, 7, 8, 9, 10]), algorithm.init(column(2, 8), 8))
    assert pack(unpack(pack(state), IFCAState)) == pack(state)


def test_it_samples_the_clients_that_fedavg_samples():
    engine = Points(range(30))
    IFCA(rate=0.2, k=2).round(IFCA(k=2).init(column(2, 8), 30), engine, Rng(3, 4))
    cohort = sample(np.arange(30), cohort_size(30, 0.2), Rng(3, 4).generator(0))
    assert np.unique(engine.asked[0][0]).tolist() == cohort.tolist()


@pytest.mark.parametrize("model", [torch.zeros(4), torch.zeros(3, 4)])
def test_it_wants_k_models_to_start_from(model):
    with pytest.raises(InputError, match=r"wants \[2, D\]"):
        IFCA(k=2).init(model, 5)


def test_settings_are_checked():
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        IFCA(k=0)
    with pytest.raises(InputError, match="rate"):
        IFCA(rate=0)


ROTATED = {
    "data": {
        "name": "digits",
        "seed": 0,
        "train_size": 52,
        "test_size": 20,
        "groups": [{"clients": 6, "rotate": r} for r in (0, 90, 180, 270)],
    },
    "model": {"name": "mlp", "hidden": [32]},
    "local": {"steps": 10, "batch": 32, "lr": 0.1},
}


@pytest.fixture(scope="module")
def rotated():
    torch.set_num_threads(1)
    job = experiment(ROTATED)
    federation = job.federation()
    return job, federation, job.simulator(federation)


def learn(rotated, algorithm, seed, rounds):
    """Train from start number `seed`: (mean training loss, adjusted Rand index, test accuracy)."""
    job, federation, engine = rotated
    starts = replace(job, algorithm=IFCA(k=4), seed=seed).initial(federation, engine)  # [4, D]
    n_models = getattr(algorithm, "n_models", None)
    state = algorithm.init(starts[0] if n_models is None else starts[:n_models], federation.n_clients)
    for number in range(1, rounds + 1):
        state = algorithm.round(state, engine, Rng(seed, number))
    c, everybody = algorithm.clustering(state), np.arange(federation.n_clients)
    test = engine.evaluate(everybody, c.models, c.labels)
    train = engine.evaluate(everybody, c.models, c.labels, "train")
    return train.loss.mean(), adjusted_rand_index(federation.groups, c.labels), test.correct.sum() / test.total.sum()


def test_one_model_is_fedavg(rotated):
    assert learn(rotated, IFCA(rate=0.3, k=1), 0, 5) == learn(rotated, FedAvg(rate=0.3), 0, 5)


@pytest.mark.parametrize(
    ("rate", "rounds", "least"), [(1.0, 25, 6), pytest.param(0.5, 50, 3, marks=pytest.mark.slow)], ids=["everybody", "half"]
)
def test_ten_starts_recover_the_four_rotations(rotated, rate, rounds, least):
    """Measured: 8 of 10 starts at full participation, 4 of 10 at half. The best start shows itself by its training loss."""
    starts = [learn(rotated, IFCA(rate=rate, k=4), seed, rounds) for seed in range(10)]
    assert min(starts)[1] == 1.0
    assert sum(ari == 1.0 for _, ari, _ in starts) >= least
    assert min(starts)[2] > learn(rotated, FedAvg(rate=rate), 0, rounds)[2] + 0.05
