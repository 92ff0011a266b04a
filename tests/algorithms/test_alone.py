"""Every client on its own: no other client's data reach its model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedgwc.algorithms.alone import Alone
from fedgwc.algorithms.method import Method
from fedgwc.core.types import Clustering, Rng
from fedgwc.data import Federation
from fedgwc.data.rows import Rows
from fedgwc.engines.simulator import Simulator
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import run
from tests.conftest import Small

from .clients import Clients, begin, vector


def after(job: Experiment, federation: Federation, n_rounds: int) -> Clustering:
    algorithm, engine = Method(Alone(), rate=0.5), Simulator(federation, job.module(federation), job.local)
    state = begin(algorithm, engine.model.vector(), federation.n_clients)
    for number in range(1, n_rounds + 1):
        state = algorithm.round(state, engine, Rng(0, number))
    return algorithm.clustering(state)


def test_a_model_depends_on_its_own_client_only(small: Small) -> None:
    job = small()
    federation = job.federation()
    one, swapped = [federation.train[k] for k in range(20)], [federation.train[k] for k in range(20)]
    swapped[3:5] = swapped[3:5][::-1]
    before, then = (after(job, replace(federation, train=Rows.of(rows)), 4).models for rows in (one, swapped))
    others = [k for k in range(20) if k not in (3, 4)]
    assert torch.equal(before[others], then[others])
    assert not torch.equal(before[3:5], then[3:5])


def test_who_was_not_sampled_keeps_the_start(small: Small) -> None:
    job = small()
    federation = job.federation()
    found = after(job, federation, 1)
    start = Simulator(federation, job.module(federation), job.local).model.vector()
    assert found.labels.tolist() == list(range(20))
    assert np.count_nonzero((found.models == start).all(1)) == 10  # half of them trained


def test_a_run_gathers_all_models_only_to_evaluate_them(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[int] = []
    clustering = Method.clustering

    def counted(self: Method[Any], state: Any) -> Clustering:
        gathered.append(1)
        return clustering(self, state)

    monkeypatch.setattr(Method, "clustering", counted)
    result = run(small("alone", rounds=8), tmp_path)  # evaluated in rounds 4 and 8
    assert len(gathered) == 2 + 1
    assert [row["clusters"] for row in result.metrics] == [20, 20]
    assert RunFolder(tmp_path).trace()["cluster"].tolist() == [list(range(6))] * 8


def test_a_newcomer_starts_from_the_model_it_was_assigned() -> None:
    method = Method(Alone())
    state = method.round(begin(method, vector(0, 0), 2), Clients([[0, 0], [1, 1]]), Rng(0, 1))
    grown = method.clustering(method.grow(state, np.array([1, 0])))
    assert grown.models.tolist() == [[0, 0], [1, 1], [1, 1], [0, 0]]
    assert grown.labels.tolist() == [0, 1, 2, 3]
