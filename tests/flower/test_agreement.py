"""Every algorithm over real messages agrees with the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.auto.beginnings import children
from fedgwc.algorithms.auto.state import Split
from fedgwc.algorithms.auto.verdicts import Waiting
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import Engine
from fedgwc.core.types import Rng
from tests.conftest import Small

from .worlds import MakeWorld

CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_grid_equals_the_simulator(name: str, small: Small, world: MakeWorld) -> None:
    job = small(name, engine={"dtype": "float64"}, local={"momentum": 0.5, "weight_decay": 1e-3})
    here = world(job, min_replies=1)  # IFCA and FeSEM may send a model to one client
    federation = job.federation()
    simulator = job.simulator(federation)
    states = [job.algorithm.init(job.initial(federation, simulator), federation.n_clients, simulator.layout)] * 2
    engines: tuple[Engine, ...] = here.engine, simulator
    for number in range(1, 6):
        here.engine.begin_round(number, job.algorithm.clustering(states[0]).labels)
        states = [job.algorithm.round(s, e, Rng(0, number)) for s, e in zip(states, engines, strict=True)]
        real, simulated = (job.algorithm.clustering(s) for s in states)
        torch.testing.assert_close(real.models, simulated.models, **CLOSE)
        np.testing.assert_array_equal(real.labels, simulated.labels)


@pytest.mark.parametrize(("faint", "ends"), [(0.0, [1, 2]), (1e9, [0])], ids=["stands", "is undone"])
def test_a_second_look_over_the_grid_equals_the_simulated_one(
    faint: float, ends: list[int], small: Small, world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight of twenty clients wait, six of them witnesses; in the third round they are asked how two models serve them."""
    monkeypatch.setattr("fedgwc.algorithms.auto.second_look.LONGEST", 3)
    monkeypatch.setattr("fedgwc.algorithms.auto.second_look.FAINT", faint)
    job = small("auto", engine={"dtype": "float64"}, algorithm={"rate": 1.0})
    here, federation = world(job), job.federation()
    simulator, algorithm = job.simulator(federation), job.algorithm
    assert isinstance(algorithm, Auto)
    whole = algorithm.init(job.initial(federation, simulator), 20, simulator.layout)
    sides, waiting = np.repeat([0, 1], 10), np.array([2, 3, 4, 5, 12, 13, 14, 15])
    witnesses = np.setdiff1d(waiting, [5, 15])
    born = tuple(children(algorithm, whole.clusters[0], sides, {}, 1, 0, Waiting(waiting, witnesses)))
    divided = replace(whole, clusters=born, splits=(Split(0, None, 0, 0, np.arange(20), sides, {}),), n_born=3)
    states = [divided, divided]
    engines: tuple[Engine, ...] = here.engine, simulator
    for number in range(1, 4):
        here.engine.begin_round(number, algorithm.clustering(states[0]).labels)
        states = [algorithm.round(s, e, Rng(0, number)) for s, e in zip(states, engines, strict=True)]
        assert here.engine.n_answered == 12
    assert [c.id for c in states[0].clusters] == ends
    for real, simulated in zip(*(s.clusters for s in states), strict=True):
        torch.testing.assert_close(real.server.theta, simulated.server.theta, **CLOSE)
        np.testing.assert_array_equal(real.members, simulated.members)
        assert (real.waiting, real.witnesses) == (None, None)
        assert real.late is not None
        assert real.late.tolist() == simulated.late.tolist()
        assert (real.late > 0).all() if ends == [0] else set(real.members[real.late > 0]) <= set(waiting)


def test_evaluation_equals_the_simulator(small: Small, world: MakeWorld) -> None:
    job = small(engine={"dtype": "float64"})
    simulator = job.simulator(job.federation())
    models = torch.stack([simulator.model.vector(), simulator.model.vector() + 0.1])
    clients, which = np.array([0, 3, 7, 7, 19]), np.array([0, 1, 0, 1, 1])
    for consent in (True, False):
        engine = world(job, consent=consent).engine
        real, simulated = (e.evaluate(clients, models, which) for e in (engine, simulator))
        np.testing.assert_array_equal(real.clients, simulated.clients)
        np.testing.assert_allclose(real.loss, simulated.loss, **CLOSE)
        np.testing.assert_array_equal(real.correct.sum(1), simulated.correct.sum(1))
        assert real.total.shape == (5, 10 if consent else 1)  # without consent no class is told apart


def test_one_message_per_node_and_round(small: Small, world: MakeWorld) -> None:
    job = small("auto", algorithm={"rate": 1.0})
    here = world(job)
    before = len(here.grid.seen)
    here.engine.begin_round(1, np.zeros(20, np.int64))
    vector = job.simulator(job.federation()).model.vector()
    job.algorithm.round(job.algorithm.init(vector, 20, Layout.unnamed(1)), here.engine, Rng(0, 1))
    asked = here.grid.seen[before:]
    assert sorted(m.metadata.dst_node_id for m in asked) == [100, 101, 102, 103, 104]
    assert {m.metadata.ttl for m in asked} == {here.engine.options.deadline}
    assert len(here.engine.tested) == 20  # test results came along
    assert here.engine.costs.bytes_up > 20 * vector.numel() * 4
    assert not here.roster.counts  # nobody consented to show class counts
