"""Runs: what they leave behind, and what a round depends on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.core.errors import InputError
from fedgwc.core.types import Clustering, Rng
from fedgwc.engines.meter import Meter
from fedgwc.engines.simulator import Simulator
from fedgwc.io.state_file import pack
from fedgwc.runs.driver import layout_of
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import rounds, run
from tests.conftest import Listener, Small
from tests.runs.stopped import StopAfter

AT_ALL_COSTS = {"rate": 1.0, "gain": -1e9, "agreement": -1.0, "contrast": -1.0, "doubt": 0.0}  # divided after two windows
EAGER: dict[str, dict[str, Any]] = {  # divided within a few rounds, so that trees are interrupted too
    "cfl": {"eps1": 100.0, "eps2": 0.01, "lengths": "absolute", "seen": 0.8},
    "fedgwc": {"eps": 0.5},
    "fedgwc-release": {"eps": 0.1, "rate": 0.4},
    "auto": AT_ALL_COSTS,
}


def test_a_run_folder_holds_what_it_promises(small: Small, tmp_path: Path) -> None:
    job = small("fedgwc", rounds=12, algorithm={"rate": 0.5, **EAGER["fedgwc"]})
    result = run(job, tmp_path / "r")
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert config["experiment"]["engine"]["how"] == "stacked"
    assert config["versions"]["torch"] == torch.__version__
    assert [row["round"] for row in result.metrics] == [4, 8, 12]
    for key in ("accuracy", "balanced_accuracy", "weighted_accuracy"):
        assert 0 <= result.last[key] <= 1
        assert f"{key}_by_size" in result.last
    trace = RunFolder(tmp_path / "r").trace()
    assert trace["ids"].shape[0] == 12
    assert trace["L"].shape[2] == 2
    tree = json.loads((tmp_path / "r" / "splits" / "tree.json").read_text())
    assert tree[0]["parent"] is None
    assert sum(len(n["members"]) for n in tree if n["ended"] is None) == 20
    leaves = {n["id"]: n["members"] for n in tree if n["ended"] is None}
    rows = [line.split(",")[:2] for line in (tmp_path / "r" / "labels.csv").read_text().split()[1:]]
    assert sorted(rows) == sorted([str(k), str(id)] for id, members in leaves.items() for k in members)
    files = {int(path.stem.removeprefix("cluster-")): path for path in (tmp_path / "r" / "models").iterdir()}
    assert set(files) == set(leaves)
    assert len(files) > 1  # so that numbers are not just rows
    for path in files.values():
        job.module(job.federation()).load_state_dict(safetensors.torch.load_file(path))


def test_the_trace_is_what_the_engine_reported(small: Small, tmp_path: Path) -> None:
    job = small("fedavg", rounds=3)
    run(job, tmp_path / "r")
    federation = job.federation()
    meter = Meter(job.simulator(federation), 20)
    states = rounds(job.algorithm, meter, meter.engine.model.vector(), 20, 3)  # type: ignore[attr-defined]
    assert [number for number, _ in states] == [1, 2, 3]
    trace = RunFolder(tmp_path / "r").trace()
    for t, report in enumerate(meter.reported):
        np.testing.assert_array_equal(trace["ids"][t], report.clients)
        np.testing.assert_array_equal(trace["L"][t], report.losses)


def test_the_bare_loop_says_what_it_needs(small: Small) -> None:
    job = small("fedavg")
    engine = job.simulator(job.federation())
    vector = engine.model.vector()
    mistakes: tuple[tuple[tuple[Any, Any, Any, int], str], ...] = (
        ((type(job.algorithm), engine, vector, 20), r"one with its settings, such as ALGORITHMS\['fedavg'\]"),
        (("fedavg", engine, vector, 20), "got 'fedavg'"),
        ((job.algorithm, engine, engine.model.module, 20), "one vector .* got Sequential"),
        ((job.algorithm, engine, vector, 5), "n_clients must be the engine's 20, got 5"),
        ((job.algorithm, engine, vector[:-1], 20), rf"models are \[M, {len(vector)}\], got \[1, {len(vector) - 1}\]"),
    )
    for given, message in mistakes:
        with pytest.raises(InputError, match=message):
            next(rounds(*given, 1))
    with pytest.raises(InputError, match="a torch module, an instance"):
        Simulator(job.federation(), torch.nn.Flatten)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(20), r"an array of whole numbers, got ndarray of shape \[20\] and float64"),
        ([0] * 20, "an array of whole numbers, got list"),
        (np.full(20, -1), r"rows of the 1 models of a clustering, 0\.\.0, got -1 to -1"),
        (np.ones(20, int), "got 1 to 1"),
        (np.zeros(3, int), "auto gave labels of 3 clients, and there are 20"),
    ],
)
def test_wrong_labels_are_told_in_the_first_round(
    labels: Any, message: str, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Auto, "clustering", lambda _, state: Clustering(state.clusters[0].server.theta[None], labels))
    with pytest.raises(InputError, match=message):
        run(small("auto", rounds=2), tmp_path / "r")


def test_a_round_depends_on_seed_round_and_state_only(small: Small) -> None:
    job = small("fedgwc")
    engine = job.simulator(job.federation())
    start = engine.model.vector()
    state = job.algorithm.init(start, 20, layout_of(engine, start))
    one = job.algorithm.round(state, engine, Rng(0, 1))
    job.algorithm.round(one, engine, Rng(0, 2))
    two = job.algorithm.round(state, engine, Rng(0, 1))
    assert pack(one) == pack(two)


def test_all_algorithms_sample_the_same_clients_while_there_is_one_cluster(small: Small) -> None:
    cohorts = {}
    for name in ALGORITHMS:
        job = small(name)
        if name == "fedgwc":  # who has been sampled rarely comes first
            continue
        federation = job.federation()
        meter = Meter(engine := job.simulator(federation), 20)
        start = job.initial(federation, engine)
        job.algorithm.round(job.algorithm.init(start, 20, layout_of(engine, start)), meter, Rng(5, 1))
        cohorts[name] = sorted(np.concatenate([r.clients for r in meter.reported]).tolist())
    assert len({tuple(c) for c in cohorts.values()}) == 1, cohorts


def test_an_output_folder_is_never_overwritten(small: Small, tmp_path: Path) -> None:
    job = small(rounds=1)
    run(job, tmp_path / "r")
    before = (tmp_path / "r" / "metrics.jsonl").read_bytes()
    with pytest.raises(InputError, match="already holds a run; resume it with --resume --out"):
        run(job, tmp_path / "r")
    assert (tmp_path / "r" / "metrics.jsonl").read_bytes() == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not an empty folder"):
        run(job, tmp_path / "full")


def test_without_a_folder_runs_never_collide(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [run(small(rounds=1)).folder for _ in range(2)]
    assert [str(f) for f in folders] == ["runs/small-fedavg-1", "runs/small-fedavg-2"]


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_a_round_is_saved_once(seconds: float, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    checkpoint = RunFolder.checkpoint

    def counted(self: RunFolder, number: int, state: Any) -> None:
        saved.append(number)
        checkpoint(self, number, state)

    monkeypatch.setattr(RunFolder, "checkpoint", counted)
    job = small(rounds=3, evaluate={"checkpoint_seconds": seconds})
    run(job, tmp_path / "r", progress=StopAfter(2))
    assert saved == ([1, 2] if seconds == 0 else [2])
    run(None, tmp_path / "r", resume=True)
    assert saved[-1:] == [3]
    assert len(set(saved)) == len(saved)


def test_an_algorithm_says_what_it_does_differently_before_the_run(small: Small, tmp_path: Path) -> None:
    watcher = Listener()
    run(small(rounds=1, algorithm={"name": "auto", "pairs_up_to": 10}), tmp_path / "r", progress=watcher)
    assert any("20 clients are more than algorithm.pairs_up_to=10" in note for note in watcher.heard)
    with pytest.raises(InputError, match="pairs_up_to=20"):
        run(small(rounds=1, algorithm={"name": "fedgwc", "pairs_up_to": 10}), tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def test_two_processes_cannot_write_one_folder(small: Small, tmp_path: Path) -> None:
    run(small(rounds=1), tmp_path / "r")
    other = RunFolder(tmp_path / "r")
    other.lock()
    with pytest.raises(InputError, match="another process is writing"):
        run(small(rounds=2), tmp_path / "r", resume=True)
    other.close()
