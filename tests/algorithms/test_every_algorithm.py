"""What must hold for every algorithm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.types import Ids, Rng, Scores, Split, Updates
from fedgwc.core.work import LocalTraining, Work
from fedgwc.data.rows import Rows
from fedgwc.engines.meter import Meter
from fedgwc.engines.settings import EngineSettings
from fedgwc.engines.simulator import Simulator
from tests.conftest import Small

from .clients import begin

ROUNDS = 6


class Silent:
    """An engine in which some clients never answer."""

    def __init__(self, engine: Simulator, silent: list[int], ask: bool) -> None:
        self.engine, self.silent, self.ask = engine, silent, ask

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        keep = ~np.isin(clients, self.silent)
        if self.ask:  # they are asked, and their rows are dropped
            updates = self.engine.train(clients, models, which, seed, work)
            return updates.rows(np.flatnonzero(~np.isin(updates.clients, self.silent)))
        return self.engine.train(clients[keep], models, which[keep], seed, work)

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        return self.engine.evaluate(clients, models, which, split)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_client_that_never_answers_is_a_removed_row(name: str, small: Small) -> None:
    job = small(name, algorithm={"rate": 0.5})
    federation = job.federation()
    engine = Simulator(federation, job.module(federation), job.local, EngineSettings(dtype="float64", how="one-by-one"))
    served = []
    for ask in (True, False):
        state = begin(job.algorithm, job.initial(federation, engine), 20)
        for number in range(1, ROUNDS + 1):
            state = job.algorithm.round(state, Silent(engine, [2, 17], ask), Rng(0, number))
        clustering = job.algorithm.clustering(state)
        served.append(clustering.models[torch.from_numpy(clustering.labels)])
    assert torch.equal(served[0], served[1])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_renaming_clients_renames_the_result(name: str, small: Small) -> None:
    """Full participation and full batches in float64: nothing is left that could depend on a client's number."""
    job = small(name, algorithm={"rate": 1.0}, local={"batch": 64})
    federation = job.federation()
    order = np.random.default_rng(0).permutation(20)
    renamed = replace(
        federation,
        train=Rows.of([federation.train[k] for k in order]),
        test=Rows.of([federation.test[k] for k in order]),
    )
    served = []
    for f in (federation, renamed):
        engine = Simulator(f, job.module(f), LocalTraining(steps=2, batch=64, lr=0.1), EngineSettings(dtype="float64"))
        state = begin(job.algorithm, job.initial(f, engine), 20)
        for number in range(1, ROUNDS + 1):
            state = job.algorithm.round(state, engine, Rng(0, number))
        clustering = job.algorithm.clustering(state)
        served.append(clustering.models[torch.from_numpy(clustering.labels)])
    torch.testing.assert_close(served[0][torch.from_numpy(order)], served[1], rtol=1e-9, atol=1e-12)


def test_costs_by_hand(small: Small) -> None:
    """610 parameters of 4 bytes; 6 clients a round of 20 at rate 0.3; 2 steps of 6 samples each."""
    model = 610 * 4
    expected = {
        "fedavg": (6 * model, 6 * (model + 8 + 2 * 4), 6, 12, 0, 72),
        # k = 2: each client downloads both models to choose and the chosen one to train, scores its 14 images twice and
        # answers with two losses.
        "ifca": (6 * 2 * model + 6 * model, 6 * 2 * 4 + 6 * (model + 8 + 2 * 4), 6, 12, 6 * 2 * 14, 72),
    }
    for name, numbers in expected.items():
        job = small(name)
        federation = job.federation()
        meter = Meter(engine := job.simulator(federation), federation.n_clients, job.local)
        state = begin(job.algorithm, job.initial(federation, engine), 20)
        job.algorithm.round(state, meter, Rng(0, 1))
        assert tuple(vars(meter.costs).values()) == numbers, name
