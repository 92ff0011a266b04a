"""FeSEM: numbers done in the head on clients that only want to be near a point, then a mixture of label codes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedgwc.algorithms.aggregate import Aggregator
from fedgwc.algorithms.fedavg import OneGroup
from fedgwc.algorithms.fesem import FeSEM, FeSEMState, e_step, first_groups
from fedgwc.algorithms.method import Method, MethodState
from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids, Rng, Updates
from fedgwc.core.work import Work
from fedgwc.data import Federation
from fedgwc.engines.simulator import Simulator
from fedgwc.io.state_file import pack
from fedgwc.metrics.clustering import adjusted_rand_index
from fedgwc.runs.experiment import experiment

from .clients import Clients, begin, column, play, state_of, thetas, vector, velocities


def near(*points: Any, **more: Any) -> Clients:
    """Clients whose training moves a model half of the way to where they are."""
    return Clients(points, reach=0.5, **more)


def test_two_rounds_by_hand() -> None:
    method, engine = Method(FeSEM(k=2), rate=1), near(0, 2, 10, 14)
    state = method.round(begin(method, vector(5), 4), engine, Rng(0, 1))
    # local models 2.5, 3.5, 7.5 and 9.5
    assert sorted(thetas(state)) == [3, 8.5]
    labels = state.groups.nearest.tolist()
    assert len({*labels[:2]}) == len({*labels[2:]}) == 1
    state = method.round(state, engine, Rng(0, 2))
    # from their centres: 1.5 and 2.5, 9.25 and 11.25
    assert sorted(thetas(state)) == [2, 10.25]


def test_distance_is_over_parameters_alone() -> None:
    method, engine = Method(FeSEM(k=2), rate=1), near([0, 900], [2, 0], [10, 900], [14, 0], n_params=1)
    state = method.round(begin(method, vector(5, 0), 4), engine, Rng(0, 1))
    labels = state.groups.nearest
    assert labels[0] == labels[1] != labels[2] == labels[3]
    assert [theta[1] for theta in thetas(state)] == [225, 225]  # the buffer is averaged: (450 + 0) / 2


def test_a_centre_without_clients_stays_and_momentum_is_per_centre() -> None:
    method = Method(FeSEM(k=3), rate=1, server=Aggregator(momentum=0.5))
    start = state_of(method, [vector(0), vector(6), vector(99)], FeSEMState(np.array([0, 0, 1])))
    state = method.round(start, near(-2, -2, 10), Rng(0, 1))
    assert thetas(state) == [-1, 8, 99]
    assert velocities(state) == [-1, 2, None]


def test_a_new_client_starts_in_the_middle_and_is_served_by_the_largest_centre() -> None:
    method, engine = Method(FeSEM(k=2), rate=1), near(0, 10, 10, 12)
    start = state_of(method, [vector(0), vector(10)], FeSEMState(np.array([0, 1, 1, -1])))
    assert method.clustering(start).labels.tolist() == [0, 1, 1, 1]
    state = method.round(start, engine, Rng(0, 1))
    assert engine.trained[0][2].flatten().tolist() == [0, 10, 10, 5]
    assert state.groups.nearest.tolist() == [0, 1, 1, 1]  # (5 + 12) / 2 = 8.5 is nearer to 10


def test_independent_centres_keep_whoever_was_dealt_to_them() -> None:
    """Centres at 0 and 100, clients at 45 and 55: half of the way there, a model is still nearer to the centre it came from."""
    method, engine = Method(FeSEM(k=2, start="independent"), rate=1), near(*[45, 55] * 50)
    _, first, second = play(method, engine, begin(method, column(0, 100), 100), 2)
    labels = first.groups.nearest
    assert (100 * labels).tolist() == engine.trained[0][2].flatten().tolist()  # each is where it was dealt
    assert 30 < labels.sum() < 70  # at random
    assert second.groups.nearest.tolist() == labels.tolist()


def test_independent_centres_are_as_many_as_asked_for() -> None:
    independent = Method(FeSEM(k=5, start="independent"), rate=0.1)
    assert (independent.n_models, Method(FeSEM(k=5)).n_models) == (5, None)
    with pytest.raises(InputError, match=r"fesem with start=independent and k=5 .* wants \[5, D\], got \[2\]"):
        begin(independent, vector(1, 2), 9)
    begin(independent, torch.zeros(5, 2), 9)  # no cohort has to hold them all


def test_too_few_answers_keep_the_common_model_for_another_round() -> None:
    method, points = Method(FeSEM(k=3), rate=1), [0, 4, 8, 9]
    state = method.round(begin(method, vector(0), 4), near(*points, silent=[2, 3]), Rng(0, 1))
    assert thetas(state) == [1]  # (0 + 2) / 2
    assert method.clustering(state).labels.tolist() == [0] * 4
    assert len(thetas(method.round(state, near(*points), Rng(0, 2)))) == 3
    assert first_groups(torch.zeros(5, 2), 2) is None  # five times the same model


def test_e_step_agrees_with_distances() -> None:
    torch.manual_seed(0)
    points, centres = 1000 + torch.randn(50, 20), 1000 + torch.randn(4, 20)
    assert e_step(points, centres).tolist() == torch.cdist(points.double(), centres.double()).argmin(1).tolist()


def test_a_centre_that_exploded_keeps_its_clients_and_leaves_the_others_theirs() -> None:
    centres = torch.tensor([[0.0], [1.0], [1e30]])
    assert e_step(torch.tensor([[0.1], [0.9], [1.2], [1.1e30]]), centres).tolist() == [0, 1, 1, 2]


class Without(Clients):
    """A federation in which clients 3 and 6 are never even asked."""

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        up = ~np.isin(clients, [3, 6])
        return super().train(clients[up], models, which[up], seed, work)


def test_a_client_that_fails_is_a_missing_row() -> None:
    method, points = Method(FeSEM(k=2), rate=0.5), [0, 1, 2, 3, 7, 8, 9, 10]
    start = begin(method, vector(5), 8)
    lost = play(method, near(*points, silent=[3, 6]), start, 6)[-1]
    assert pack(lost) == pack(play(method, Without(points, reach=0.5), start, 6)[-1])
    assert lost.groups.nearest[[3, 6]].tolist() == [-1, -1]


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        FeSEM(k=0)
    with pytest.raises(InputError, match="cohorts of 3; lower k or raise rate"):
        begin(Method(FeSEM(k=4)), vector(0), 20)


MIXTURE: dict[str, Any] = {
    "data": {"name": "digits", "train_size": 50, "test_size": 20, "groups": [{"clients": 10}, {"clients": 10, "relabel": 5}]},
    "model": {"name": "mlp", "hidden": [32]},
    "local": {"steps": 10, "batch": 16, "lr": 0.1},
}


class Recorded:
    """An engine that remembers what it answered last."""

    def __init__(self, engine: Simulator) -> None:
        self.engine = engine
        self.evaluate = engine.evaluate

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        self.last = self.engine.train(clients, models, which, seed, work)
        return self.last


Mixture = tuple[Federation, Simulator, int]


@pytest.fixture(scope="module", params=[0, 1, 2])
def mixture(request: pytest.FixtureRequest) -> Mixture:
    torch.set_num_threads(1)
    job = experiment({**MIXTURE, "seed": request.param})
    federation = job.federation()
    return federation, job.simulator(federation), request.param


def accuracy(mixture: Mixture, method: Method[Any], n_rounds: int) -> tuple[float, float]:
    """(test accuracy, adjusted Rand index) after so many rounds."""
    federation, engine, seed = mixture
    state = begin(method, engine.model.vector(), federation.n_clients)
    for number in range(1, n_rounds + 1):
        state = method.round(state, engine, Rng(seed, number))
    c = method.clustering(state)
    scores = engine.evaluate(np.arange(federation.n_clients), c.models, c.labels)
    assert federation.groups is not None
    return float(scores.correct.sum() / scores.total.sum()), adjusted_rand_index(federation.groups, c.labels)


def test_one_centre_is_fedavg(mixture: Mixture) -> None:
    assert accuracy(mixture, Method(FeSEM(k=1), rate=0.3), 5) == accuracy(mixture, Method(OneGroup(), rate=0.3), 5)


@pytest.mark.parametrize(("rate", "n_rounds"), [(1.0, 20), (0.3, 60)])
def test_two_centres_beat_one_on_a_mixture(mixture: Mixture, rate: float, n_rounds: int) -> None:
    two, ari = accuracy(mixture, Method(FeSEM(k=2), rate=rate), n_rounds)
    assert ari == 1.0
    assert two > accuracy(mixture, Method(FeSEM(k=1), rate=rate), n_rounds)[0] + 0.3


def test_the_objective_never_rises_in_a_round_of_everybody(mixture: Mixture) -> None:
    """Sum of squared distances of the local models to their centres: before the E-step, after it, after the M-step."""
    federation, engine, seed = mixture
    watched, method = Recorded(engine), Method(FeSEM(k=3), rate=1)
    state = method.round(begin(method, engine.model.vector(), federation.n_clients), watched, Rng(seed, 1))
    # Ward's groups are so good that nobody would ever move again: begin from random ones instead.
    state = replace(state, groups=FeSEMState(np.random.default_rng(seed).integers(0, 3, federation.n_clients)))
    moved = 0
    for number in range(2, 13):
        before, state = state, method.round(state, watched, Rng(seed, number))
        stages = [(before, before.groups.nearest), (before, state.groups.nearest), (state, state.groups.nearest)]
        start, e, m = [objective(watched.last.models, *stage) for stage in stages]
        assert start >= e >= m * (1 - 1e-6)
        moved += int((before.groups.nearest != state.groups.nearest).sum())
    assert moved


def objective(models: Tensor, state: MethodState[FeSEMState], labels: Ids) -> float:
    return float((models - torch.stack([s.theta for s in state.servers])[labels]).double().square().sum())
