"""All ways to run a cohort give the same models: every algorithm, from the same state, at each of five rounds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.types import Rng, Updates
from fedgwc.core.work import LocalTraining
from fedgwc.engines import recorded
from fedgwc.engines.settings import How
from fedgwc.engines.simulator import EngineSettings, Simulator
from fedgwc.runs.experiment import Experiment
from tests.conftest import Small

Dtype = Literal["float32", "float64"]
BOTH: tuple[How, ...] = ("stacked", "one-by-one")
TOLERANCE: dict[Dtype, dict[str, Any]] = {"float64": {"rtol": 1e-9, "atol": 1e-12}, "float32": {"rtol": 1e-4, "atol": 1e-6}}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_stacked_equals_one_by_one(name: str, dtype: Dtype, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "AFTER", 1)  # the second round of a shape on is a recording
    job = small(name, local={"momentum": 0.5, "weight_decay": 1e-3})
    federation = job.federation()
    module = job.module(federation)
    ways = [Simulator(federation, module, job.local, EngineSettings(how=h, dtype=dtype)) for h in BOTH]
    state = job.algorithm.init(job.initial(federation, ways[0]), federation.n_clients, ways[0].layout)
    for number in range(1, 6):
        stacked, single = (job.algorithm.clustering(job.algorithm.round(state, e, Rng(0, number))) for e in ways)
        torch.testing.assert_close(stacked.models, single.models, **TOLERANCE[dtype])
        if dtype == "float64":
            np.testing.assert_array_equal(stacked.labels, single.labels)
        state = job.algorithm.round(state, ways[0], Rng(0, number))
    assert [w.how for w in ways] == ["stacked", "one-by-one"]


def both_ways(
    job: Experiment, module: nn.Module, local: LocalTraining | None = None, **settings: Any
) -> tuple[list[Simulator], list[Updates]]:
    """One cohort's updates, stacked and one by one, in float64."""
    federation = job.federation()
    engines = [
        Simulator(federation, module, local or job.local, EngineSettings(how=h, dtype="float64", **settings)) for h in BOTH
    ]
    clients = np.arange(0, 20, 3)
    start = engines[0].model.vector()[None]
    return engines, [e.train(clients, start, np.zeros(len(clients), np.int64), 7) for e in engines]


def assert_same(a: Updates, b: Updates) -> None:
    np.testing.assert_array_equal(a.clients, b.clients)
    torch.testing.assert_close(a.models, b.models, **TOLERANCE["float64"])
    torch.testing.assert_close(a.losses, b.losses, equal_nan=True, **TOLERANCE["float64"])


def uneven(small: Small) -> Experiment:
    """Clients of 5, 9 and 14 images: batches need padding and clients make different numbers of steps."""
    groups = [{"clients": 6, "train_size": 5}, {"clients": 7, "train_size": 9}, {"clients": 7}]
    return small(data={"groups": groups})


def test_uneven_clients(small: Small) -> None:
    job = uneven(small)
    _, (a, b) = both_ways(job, job.module(job.federation()), LocalTraining(epochs=2, batch=6, lr=0.1))
    assert_same(a, b)
    assert a.losses.isnan().any()  # the small ones made fewer steps


def test_a_recorded_round_serves_other_cohorts(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those whose clients are larger or smaller, and it draws anew for every seed."""
    job = uneven(small)
    federation = job.federation()
    module = job.module(federation)
    stacked, single = (
        Simulator(federation, module, LocalTraining(steps=3, batch=6, lr=0.1), EngineSettings(how=h, dtype="float64"))
        for h in BOTH
    )
    monkeypatch.setattr(recorded, "AFTER", 1)
    monkeypatch.setattr(torch.jit, "trace", traced := Counting(torch.jit.trace))
    start, zeros = stacked.model.vector()[None], np.zeros(5, np.int64)
    for seed in range(6):
        clients = np.random.default_rng(seed).choice(20, 5, replace=False)
        updates = stacked.train(clients, start, zeros, seed)
        assert_same(updates, single.train(clients, start, zeros, seed))
        assert not updates.models.is_inference()  # anybody may write on them
    assert "program" in traced.names
    assert len(traced.names) <= 4  # the step, and the round in at most three shapes


class Counting:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.names: list[str] = []

    def __call__(self, given: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        self.names.append(given.__name__)
        return self.function(given, *args, **settings)


def test_chunks_change_nothing(small: Small) -> None:
    job = small()
    module = job.module(job.federation())
    _, (whole, _) = both_ways(job, module)
    _, (chunked, _) = both_ways(job, module, chunk=3)
    assert_same(whole, chunked)


def test_batch_norm_stacks_where_batches_are_even(small: Small) -> None:
    job = uneven(small)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))
    engines, (a, b) = both_ways(job, module)
    assert_same(a, b)
    assert engines[0].how == "stacked"
    n = engines[0].model.n_params
    assert (a.models[:, n:] != engines[0].model.vector()[n:]).any()  # the running statistics moved, and travelled


def test_a_client_that_batch_norm_cannot_serve_is_a_missing_row(small: Small, caplog: pytest.LogCaptureFixture) -> None:
    """One image gives BatchNorm one value per channel, which has no variance."""
    job = small(data={"groups": [{"clients": 19}, {"clients": 1, "train_size": 1}]})
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
    engine = Simulator(job.federation(), module, job.local, EngineSettings(how="stacked"))
    updates = engine.train(np.array([1, 19]), engine.model.vector()[None], np.zeros(2, np.int64), 0)
    assert updates.clients.tolist() == [1]
    assert "cannot train this model" in caplog.text
    assert engine.how == "stacked"


def test_dropout_runs_one_by_one_unless_asked(small: Small, caplog: pytest.LogCaptureFixture) -> None:
    job = small()
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(0.5), nn.Linear(8, 10))
    with caplog.at_level(logging.WARNING):
        engines, (a, b) = both_ways(job, module)
    assert engines[0].how == "one-by-one"
    assert "stack_random" in caplog.text
    assert_same(a, b)  # a client's own stream decides, so two engines agree even with Dropout
    engines, (a, _) = both_ways(job, module, stack_random=True)
    assert engines[0].how == "stacked"
    assert torch.isfinite(a.models).all()


class Unstackable(nn.Module):
    """Looks at a value, which vmap cannot do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x.flatten(1))
        return out if out.sum().item() > 0 else 1.0 * out


def test_what_cannot_be_stacked_falls_back_and_says_so_once(small: Small, caplog: pytest.LogCaptureFixture) -> None:
    job = small()
    with caplog.at_level(logging.WARNING):
        engines, (a, b) = both_ways(job, Unstackable())
        engines[0].train(np.arange(3), engines[0].model.vector()[None], np.zeros(3, np.int64), 1)
    assert_same(a, b)
    assert engines[0].how == "one-by-one"
    assert caplog.text.count("cannot be stacked") == 1


def test_a_client_that_explodes_is_a_missing_row(small: Small) -> None:
    job = small()
    federation = job.federation()
    federation.x[:][torch.from_numpy(federation.train[3])] = 1e38
    module = job.module(federation)
    for how in BOTH:
        engine = Simulator(federation, module, LocalTraining(steps=3, lr=1e6), EngineSettings(how=how))
        updates = engine.train(np.arange(5), engine.model.vector()[None], np.zeros(5, np.int64), 0)
        assert 3 not in updates.clients
        assert torch.isfinite(updates.models).all()
        assert torch.isfinite(updates.losses).all()


def test_the_order_of_a_cohort_does_not_matter(small: Small) -> None:
    job = small()
    federation = job.federation()
    engine = Simulator(federation, job.module(federation), job.local, EngineSettings(dtype="float64"))
    start, zeros = engine.model.vector()[None], np.zeros(4, np.int64)
    forth, back = engine.train(np.arange(4), start, zeros, 5), engine.train(np.arange(4)[::-1], start, zeros, 5)
    torch.testing.assert_close(forth.models, back.models.flip(0), **TOLERANCE["float64"])


def test_each_client_starts_from_its_own_model(small: Small) -> None:
    job = small()
    federation = job.federation()
    engine = job.simulator(federation)
    models = torch.stack([engine.model.vector(), engine.model.vector() + 0.1])
    mixed = engine.train(np.arange(4), models, np.array([0, 1, 1, 0]), 5)
    for m in (0, 1):
        alone = engine.train(np.arange(4), models[m : m + 1], np.zeros(4, np.int64), 5)
        rows = np.flatnonzero(np.array([0, 1, 1, 0]) == m)
        torch.testing.assert_close(mixed.models[rows], alone.models[rows], **TOLERANCE["float32"])


def test_evaluation_counts_by_class(small: Small) -> None:
    """A model that always says 3 is right on the threes and only there."""
    job = small()
    federation = job.federation()
    layer = nn.Linear(64, 10)
    nn.init.zeros_(layer.weight)
    layer.bias.data = torch.eye(10)[3] * 5
    module = nn.Sequential(nn.Flatten(), layer)
    engine = Simulator(federation, module)
    clients = np.array([2, 0, 2])
    scores = engine.evaluate(clients, engine.model.vector()[None], np.zeros(3, np.int64))
    counts = federation.class_counts("test")[clients]
    np.testing.assert_array_equal(scores.total, counts)
    np.testing.assert_array_equal(scores.correct[:, 3], counts[:, 3])
    assert scores.correct.sum() == counts[:, 3].sum()
    share = counts[:, 3] / counts.sum(1)  # loss: log(9 + e^5), less 5 where the answer is 3
    np.testing.assert_allclose(scores.loss, np.log(9 + np.exp(5)) - 5 * share, rtol=1e-6)
