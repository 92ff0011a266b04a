"""Runs in step on one engine: each ends as it would have alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.fedavg import OneGroup, OneGroupState
from fedgwc.algorithms.method import Method, MethodState
from fedgwc.cli import compare
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Engine
from fedgwc.core.types import Rng, Updates
from fedgwc.data import Group, digits
from fedgwc.data.merge import merge
from fedgwc.engines.pool import SharedEngine
from fedgwc.engines.simulator import Simulator
from fedgwc.runs import batch, together
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import run
from fedgwc.runs.together import run_together
from fedgwc.training.flat_model import FlatModel
from tests.conftest import Small


def test_union_numbers_clients_end_to_end_and_keeps_equal_data_once() -> None:
    a, b = digits(seed=0, train_size=6), digits(seed=1, train_size=6, groups=(Group(30),))
    both = merge([a, b])
    assert both.n_clients == 130
    twice = merge([b, b])
    assert len(twice.x) == len(b.x)  # one copy
    assert len(both.x) == len(a.x) + len(b.x)  # labels differ: a has shifted ones
    for k in (0, 29):
        assert torch.equal(both.x[both.train[100 + k]], b.x[b.train[k]])
        assert torch.equal(both.y[both.test[100 + k]], b.y[b.test[k]])
    with pytest.raises(InputError, match="one kind"):
        merge([a, replace(a, n_classes=11)])


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_run_ends_as_it_would_have_alone(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    monkeypatch.setattr(together, "SharedEngine", partial(SharedEngine, lanes=lanes))
    engine = {"dtype": "float64", "how": "stacked", "device": "cpu"}
    at_all_costs = {"rate": 0.9, "min_size": 2, "gain": -1e9, "agreement": -1.0, "contrast": -1.0, "doubt": 0.0}
    jobs = {
        "fedavg": small("fedavg", engine=engine),
        "other seed": small("fedavg", engine=engine, seed=3),
        "shorter": small("fedavg", engine=engine, rounds=5, seed=4),
        "auto": small("auto", engine=engine, algorithm=at_all_costs, rounds=24),
        "ifca": small("ifca", engine=engine),
    }
    ended = run_together([(job, tmp_path / "together" / name) for name, job in jobs.items()])
    for (name, job), result in zip(jobs.items(), ended, strict=True):
        alone = run(job, tmp_path / "alone" / name)
        assert result.finished
        assert len(result.metrics) == len(alone.metrics)
        torch.testing.assert_close(result.clustering.models, alone.clustering.models, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(result.clustering.labels, alone.clustering.labels)
        a, b = (RunFolder(r.folder).trace() for r in (result, alone))
        np.testing.assert_array_equal(a["ids"], b["ids"])
        np.testing.assert_allclose(a["L"], b["L"], rtol=1e-9, atol=1e-9)
    assert len(ended[3].clustering.models) > 1  # it was divided in round 22


def test_interrupted_together_resumed_together(small: Small, tmp_path: Path) -> None:
    jobs = [(small(seed=s, rounds=6), tmp_path / "whole" / str(s)) for s in range(3)]
    whole = run_together(jobs)
    half = [(small(seed=s, rounds=3), tmp_path / "parts" / str(s)) for s in range(3)]
    run_together(half)
    rest = run_together([(job, path) for (job, _), (_, path) in zip(jobs, half, strict=True)])
    for a, b in zip(whole, rest, strict=True):
        assert torch.equal(a.clustering.models, b.clustering.models)
        assert [m["accuracy"] for m in a.metrics][-1] == [m["accuracy"] for m in b.metrics][-1]


@pytest.mark.parametrize("begun", [0, 1])
def test_one_that_has_begun_goes_on_beside_a_new_one(small: Small, tmp_path: Path, begun: int) -> None:
    """Its config.json says which engine was chosen; the new one leaves that open."""
    jobs = [(small(seed=s, rounds=4), tmp_path / str(s)) for s in range(2)]
    run_together([(small(seed=begun, rounds=2), tmp_path / str(begun))])
    assert [r.last["round"] for r in run_together(jobs)] == [4, 4]


def test_nothing_to_run_together() -> None:
    assert run_together([]) == []


def test_models_built_in_threads_are_those_of_their_seeds(small: Small) -> None:
    jobs = [small(seed=s, model={"hidden": [400, 400]}) for s in range(8)]
    federation = jobs[0].federation()
    vectors = [FlatModel(job.module(federation)).vector() for job in jobs]
    with ThreadPoolExecutor(8) as pool:
        modules = list(pool.map(lambda job: job.module(federation), jobs * 4))
    for module, vector in zip(modules, vectors * 4, strict=True):
        assert torch.equal(FlatModel(module).vector(), vector)


@dataclass(frozen=True)
class Faulty(Method[OneGroupState]):
    def advance(self, state: MethodState[OneGroupState], engine: Engine, rng: Rng) -> MethodState[OneGroupState]:
        if rng.round == 2:
            raise RuntimeError("broken in round 2")
        return super().advance(state, engine, rng)


def test_one_run_that_fails_does_not_stop_the_others(small: Small, tmp_path: Path) -> None:
    good, bad = small(seed=0), replace(small(seed=1), algorithm=Faulty(OneGroup()))
    with pytest.raises(RuntimeError, match="round 2"):
        run_together([(bad, tmp_path / "bad"), (good, tmp_path / "good")])
    assert RunFolder(tmp_path / "good").metrics()[-1]["round"] == good.rounds


@pytest.mark.parametrize("late", [False, True])
def test_an_engine_that_fails_tells_everybody(small: Small, late: bool) -> None:
    """When it is asked or, as a card does, when the results should be there."""
    jobs = [small(seed=0), small(seed=1)]
    federations = [job.federation() for job in jobs]

    def fail() -> NoReturn:
        raise RuntimeError("no memory left")

    class Broken(Simulator):
        def begin(self, *arguments: Any, **named: Any) -> Callable[[], Updates]:
            return fail if late else fail()

    pool = SharedEngine(federations, lambda f: Broken(f, jobs[0].module(f), jobs[0].local))
    pool.members[1].leave()
    with pytest.raises(RuntimeError, match="no memory left"):
        pool.members[0].train(np.arange(3), torch.zeros(1, pool.engine.model.size), np.zeros(3, np.int64), 0)


def test_one_lane_asks_while_the_other_waits_for_its_results(small: Small) -> None:
    """On a card that is the point of having two: it has work while the host takes the server's step."""
    job = small()
    both_have_asked = threading.Barrier(2, timeout=30)

    class Slow(Simulator):
        def begin(self, *arguments: Any, **named: Any) -> Callable[[], Updates]:
            finish = super().begin(*arguments, **named)
            return lambda: (both_have_asked.wait(), finish())[1]

    pool = SharedEngine([job.federation()] * 2, lambda f: Slow(f, job.module(f), job.local), lanes=2)
    start = pool.engine.model.vector()[None]
    with ThreadPoolExecutor(2) as threads:
        one, two = threads.map(lambda m: m.train(np.arange(3), start, np.zeros(3, np.int64), 5), pool.members)
    assert torch.equal(one.models, two.models)


def test_a_run_may_save_its_model_while_others_train(small: Small) -> None:
    """While a module is called with other tensors, those stand in the place of its own, for every thread to see."""
    job = small()
    pool = SharedEngine([job.federation()] * 2, lambda f: Simulator(f, job.module(f), job.local))
    training, member = pool.engine.model, pool.members[0]
    start = training.vector()
    saved: list[dict[str, torch.Tensor]] = []
    training.module.register_forward_hook(lambda *_: saved.append(member.model.state_dict(start)))
    x = pool.engine.samples.inputs(torch.arange(3, device=pool.engine.device))
    torch.func.grad(lambda theta: training.logits(training.tensors(theta), x).sum())(start)
    for name, tensor in member.model.tensors(start).items():
        assert torch.equal(saved[0][name], tensor)


def test_what_cannot_run_together_is_refused(small: Small, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the same model"):
        run_together([(small(), tmp_path / "a"), (small(local={"lr": 0.2}), tmp_path / "b")])
    assert not (tmp_path / "a").exists()


def test_compare_on_a_gpu_runs_in_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU's way of comparing, on the CPU: the same table as one by one."""
    quick = ["rounds=4", "data.train_size=6", "evaluate.every=4"]
    names = [n for n in ALGORITHMS if n in ("fedavg", "fedprox", "auto")]
    compare.compare_command("digits", names, 2, quick, tmp_path / "alone", jobs=1)
    monkeypatch.setattr(batch, "device_of", lambda settings: torch.device("cuda"))
    compare.compare_command("digits", names, 2, quick, tmp_path / "step")
    for name in names:
        files = [tmp_path / how / f"{name}-seed1" / "metrics.jsonl" for how in ("alone", "step")]
        rows = [json.loads(f.read_text().splitlines()[-1]) for f in files]
        assert rows[0]["accuracy"] == pytest.approx(rows[1]["accuracy"], abs=0.01)
        assert rows[0]["client_updates"] == rows[1]["client_updates"]
