"""Every client on its own: no other client's data reach its model."""

from dataclasses import replace

import numpy as np
import torch
from fedgwc.flower.joining import grow

from fedgwc.algorithms.alone import Alone, AloneState
from fedgwc.core.types import Rng
from fedgwc.data.rows import Rows
from fedgwc.engines.simulator import Simulator
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import run


def after(job, federation, rounds: int):
    algorithm, engine = Alone(rate=0.5), Simulator(federation, job.module(federation), job.local)
    state = algorithm.init(engine.model.vector(), federation.n_clients)
    for number in range(1, rounds + 1):
        state = algorithm.round(state, engine, Rng(0, number))
    return algorithm.clustering(state)


def test_a_model_depends_on_its_own_client_only(small) -> None:
    job = small()
    federation = job.federation()
    one, swapped = [federation.train[k] for k in range(20)], [federation.train[k] for k in range(20)]
    swapped[3:5] = swapped[3:5][::-1]
    before, then = (after(job, replace(federation, train=Rows.of(rows)), 4).models for rows in (one, swapped))
    others = [k for k in range(20) if k not in (3, 4)]
    assert torch.equal(before[others], then[others])
    assert not torch.equal(before[3:5], then[3:5])


def test_who_was_not_sampled_keeps_the_start(small) -> None:
    job = small()
    federation = job.federation()
    found = after(job, federation, 1)
    start = Simulator(federation, job.module(federation), job.local).model.vector()
    assert found.labels.tolist() == list(range(20))
    assert np.count_nonzero((found.models == start).all(1)) == 10  # half of them trained


def test_a_run_gathers_all_models_only_to_evaluate_them(small, tmp_path, monkeypatch) -> None:
    gathered: list[int] = []
    clustering = Alone.clustering
    monkeypatch.setattr(Alone, "clustering", lambda self, state: (gathered.append(1), clustering(self, state))[1])
    result = run(small("alone", rounds=8), tmp_path)  # evaluated in rounds 4 and 8
    assert len(gathered) == 2 + 1
    assert [row["clusters"] for row in result.metrics] == [20, 20]
    assert RunFolder(tmp_path).trace()["cluster"].tolist() == [list(range(6))] * 8


def test_a_newcomer_starts_from_the_model_it_was_assigned() -> None:
    state = AloneState((torch.zeros(2), torch.ones(2)))
    grown = Alone().clustering(grow(state, np.array([1, 0])))
    assert grown.models.tolist() == [[0, 0], [1, 1], [1, 1], [0, 0]]
    assert grown.labels.tolist() == [0, 1, 2, 3]
