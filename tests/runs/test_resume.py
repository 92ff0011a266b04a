"""Interrupted and resumed equals uninterrupted, for every algorithm, bit for bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.errors import InputError
from fedgwc.data import digits
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import run
from tests.conftest import Listener, Small
from tests.runs.stopped import StopAfter, metrics


def assert_same_runs(a: Path, b: Path) -> None:
    assert metrics(a) == metrics(b)
    models = [sorted((f / "models").iterdir()) for f in (a, b)]
    assert [p.name for p in models[0]] == [p.name for p in models[1]]
    for p, q in zip(*models, strict=True):
        assert p.read_bytes() == q.read_bytes()
    one, two = RunFolder(a).trace(), RunFolder(b).trace()
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
    assert (a / "labels.csv").read_text() == (b / "labels.csv").read_text()
    assert RunFolder(a).verdicts() == RunFolder(b).verdicts()
    splits = [{p.name: dict(np.load(p)) for p in (f / "splits").glob("*.npz")} for f in (a, b)]
    assert splits[0].keys() == splits[1].keys()
    for name, arrays in splits[0].items():
        for key, value in arrays.items():
            np.testing.assert_array_equal(value, splits[1][name][key])


AT_ALL_COSTS = {"rate": 1.0, "gain": -1e9, "agreement": -1.0, "contrast": -1.0, "doubt": 0.0}  # divided after two windows
EAGER: dict[str, dict[str, Any]] = {  # divided within a few rounds, so that trees are interrupted too
    "cfl": {"eps1": 100.0, "eps2": 0.01, "lengths": "absolute", "seen": 0.8},
    "fedgwc": {"eps": 0.5},
    "fedgwc-release": {"eps": 0.1, "rate": 0.4},
    "auto": AT_ALL_COSTS,
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_resuming_changes_nothing(name: str, small: Small, tmp_path: Path) -> None:
    n_rounds = 24 if name == "auto" else 12
    job = small(name, rounds=n_rounds, algorithm={"rate": 0.5, **EAGER.get(name, {})})
    whole = run(job, tmp_path / "whole")
    stopped = run(job, tmp_path / "parts", progress=StopAfter(n_rounds // 3))
    assert whole.finished
    assert not stopped.finished
    again = run(None, tmp_path / "parts", resume=True, progress=StopAfter(n_rounds - 2))
    assert not again.finished
    assert run(None, tmp_path / "parts", resume=True).finished
    assert_same_runs(tmp_path / "whole", tmp_path / "parts")
    if name in EAGER:
        assert whole.last["clusters"] > 1


def test_verdicts_are_recorded_once_each_however_often_a_run_is_resumed(small: Small, tmp_path: Path) -> None:
    """With everybody there, windows are 10 rounds long: the run stops where one ends, and within one."""
    job = small("auto", rounds=35, algorithm={"rate": 1.0, "contrast": -1.0, "agreement": -1.0, "gain": -1e9})
    assert run(job, tmp_path / "whole").last["clusters"] > 1
    run(job, tmp_path / "parts", progress=StopAfter(10))
    for stop in (20, 25):
        run(None, tmp_path / "parts", resume=True, progress=StopAfter(stop))
    # as a kill leaves it: rounds after the checkpoint were noted, the last line only in part
    with (tmp_path / "parts" / "verdicts.jsonl").open("a") as file:
        file.write('{"round": 30, "cluster": 1}\n{"round": 30, "clu')
    assert run(None, tmp_path / "parts", resume=True).finished
    assert_same_runs(tmp_path / "whole", tmp_path / "parts")
    rows = RunFolder(tmp_path / "whole").verdicts()
    assert [(r["round"], r["cluster"]) for r in rows[:2]] == [(10, 0), (20, 0)]
    tree = json.loads((tmp_path / "whole" / "splits" / "tree.json").read_text())
    ended = [(n["ended"], n["id"], len(n["members"])) for n in tree if n["ended"] is not None]
    assert [(r["round"], r["cluster"], r["clients"]) for r in rows if r["divides"]] == sorted(ended)


def test_a_run_of_an_earlier_version_is_not_gone_on_with_by_another_rule(small: Small, tmp_path: Path) -> None:
    run(small("auto", rounds=6), tmp_path, progress=StopAfter(3))
    config = json.loads((tmp_path / "config.json").read_text())
    del config["experiment"]["algorithm"]["gain"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"did not have algorithm\.gain"):
        run(None, tmp_path, resume=True)
    config["experiment"]["algorithm"]["margin"] = 0.5
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"another version.*no setting 'margin'.*start anew"):
        run(None, tmp_path, resume=True)


def test_a_run_goes_on_with_the_defaults_it_began_with(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = small(rounds=4)
    for table in ("data", "model"):
        job.tables[table] = {"name": job.tables[table]["name"]}
    run(job, tmp_path / "whole")
    run(job, tmp_path / "parts", progress=StopAfter(2))
    assert digits.__kwdefaults__ is not None
    monkeypatch.setitem(digits.__kwdefaults__, "train_size", 7)
    assert job.federation().train.sizes[0] == 7
    assert run(job, tmp_path / "parts", resume=True).finished
    assert_same_runs(tmp_path / "whole", tmp_path / "parts")


def test_resuming_with_other_settings_is_refused(small: Small, tmp_path: Path) -> None:
    run(small(rounds=2), tmp_path / "r")
    with pytest.raises(InputError, match="a run with other seed"):
        run(small(rounds=2, seed=1), tmp_path / "r", resume=True)
    longer = run(small(rounds=4), tmp_path / "r", resume=True)  # more rounds of the same are fine
    assert longer.last["round"] == 4
    with pytest.raises(InputError, match="holds a run of 4 rounds already, and 2 are asked for"):
        run(small(rounds=2), tmp_path / "r", resume=True)
    run(replace(small(rounds=4), about="in other words", recipe="renamed"), tmp_path / "r", resume=True)


def test_resuming_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run"):
        run(None, tmp_path, resume=True)
    with pytest.raises(InputError, match="--resume needs --out"):
        run(None, resume=True)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(small: Small, tmp_path: Path) -> None:
    job = small(rounds=6, evaluate={"every": 2, "checkpoint_seconds": 0.0})
    whole = run(job, tmp_path / "whole")
    run(job, tmp_path / "r", progress=StopAfter(4))
    newest = max((tmp_path / "r" / "state").iterdir())
    data = bytearray(newest.read_bytes())
    data[-5] ^= 1
    newest.write_bytes(data)
    watcher = Listener()
    assert run(None, tmp_path / "r", resume=True, progress=watcher).finished
    assert "checksum" in watcher.heard[0]
    assert_same_runs(whole.folder, tmp_path / "r")


def test_deterministic_choice_of_the_engine_is_repeated_on_resume(small: Small, tmp_path: Path) -> None:
    job = small(rounds=4, engine={"how": "one-by-one"})
    run(job, tmp_path / "r", progress=StopAfter(2))
    run(None, tmp_path / "r", resume=True)
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert config["experiment"]["engine"]["how"] == "one-by-one"
