"""Comparisons: what is tried, what is best, and equal footing."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from fedgwc.cli.app import main
from fedgwc.cli.compare import PICKED, compare_command
from fedgwc.core.errors import InputError
from fedgwc.runs.batch import _died, _run_one
from fedgwc.runs.comparison import plan_runs
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.processes import Died
from fedgwc.runs.tables import comparison_table

QUICK = ["rounds=4", "data.train_size=6", "evaluate.every=4"]
NOBODY_NEW = "data.newcomers=0.0"


def test_a_sweep_reports_the_best_beside_what_was_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare_command("digits", ["fedavg", "ifca"], 2, QUICK, tmp_path, sweeps=["ifca.k=2,3"], jobs=1)
    rows = list(csv.reader((tmp_path / "comparison.csv").read_text().splitlines()))
    assert rows[0][0] == "algorithm"
    assert [r[0].split()[0] for r in rows[1:]] == ["fedavg", "ifca"]
    assert rows[2][-1] == "2, 3"
    tried = list(csv.reader((tmp_path / "everything-tried.csv").read_text().splitlines()))
    assert [r[0] for r in tried[1:]] == ["fedavg", "ifca k=2", "ifca k=3"]
    assert "±" in capsys.readouterr().out


def test_the_rule_that_picked_is_told_where_there_was_a_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare_command("digits", ["ifca"], 1, [*QUICK, "rounds=1"], tmp_path / "a", sweeps=["ifca.k=2,3"], jobs=1)
    assert f"{PICKED} {tmp_path / 'a' / 'everything-tried.md'} has all that were tried." in capsys.readouterr().out
    compare_command("digits", ["ifca"], 1, [*QUICK, "rounds=1"], tmp_path / "b", jobs=1)
    assert PICKED not in capsys.readouterr().out


def test_switches_and_text_are_swept_too(tmp_path: Path) -> None:
    sweeps = ["algorithm.second_look=true,false", 'model.name="mlp"']
    compare_command("digits", ["auto"], 1, [*QUICK, "rounds=1"], tmp_path, sweeps=sweeps, jobs=1)
    tried = list(csv.reader((tmp_path / "everything-tried.csv").read_text().splitlines()))
    assert [r[0] for r in tried[1:]] == [f"auto second_look={v} name=mlp" for v in (True, False)]


def test_a_swept_path_names_a_folder_beside_the_others(tmp_path: Path) -> None:
    sweeps = [f"data.partition_file={tmp_path}/a.npz,b.npz"]
    names = [run.name for run in plan_runs("digits", ["fedavg"], 1, ["data.name=cifar10", *QUICK[:1]], "full", sweeps)]
    assert names == [f"fedavg-partition_file={str(tmp_path).replace('/', '_')}_a.npz-seed0", "fedavg-partition_file=b.npz-seed0"]


def test_a_folders_name_is_no_longer_than_systems_allow() -> None:
    layers = [",".join(["8"] * n) for n in (60, 90, 91)]
    sweeps = ["model.hidden=" + ",".join(f"[{widths}]" for widths in layers)]
    names = [run.name for run in plan_runs("digits", ["fedavg"], 2, QUICK[:1], "full", sweeps)]
    assert names[0] == f"fedavg-hidden={[8] * 60}-seed0"  # as it is, if it can be
    assert len({*names}) == 6
    assert [len(name) for name in names[1:3]] == [252, 252]
    assert all(name.startswith("fedavg-hidden=[8, 8, ") for name in names)


def test_seeds_count_from_the_one_that_is_set(tmp_path: Path) -> None:
    compare_command("digits", ["fedavg"], 2, [*QUICK, "rounds=1", "seed=4"], tmp_path, jobs=1)
    assert {p.name for p in tmp_path.glob("fedavg-*")} == {"fedavg-seed4", "fedavg-seed5"}
    assert RunFolder(tmp_path / "fedavg-seed4").config()["experiment"]["seed"] == 4


def test_what_is_swept_twice_runs_once(tmp_path: Path) -> None:
    compare_command("digits", ["ifca"], 1, [*QUICK, "rounds=1"], tmp_path, sweeps=["ifca.k=2,2"], jobs=1)
    assert [p.name for p in tmp_path.glob("ifca-*")] == ["ifca-k=2-seed0"]


def test_a_budget_stops_everybody_at_the_same_cost(tmp_path: Path) -> None:
    compare_command("digits", ["fedavg", "auto"], 1, [*QUICK, NOBODY_NEW, "evaluate.budget.updates=40"], tmp_path, jobs=1)
    for name in ("fedavg", "auto"):
        last = json.loads((tmp_path / f"{name}-seed0" / "metrics.jsonl").read_text().splitlines()[-1])
        assert last["client_updates"] == 40
    config = json.loads((tmp_path / "auto-seed0" / "config.json").read_text())
    assert config["experiment"]["evaluate"]["budget"]["updates"] == 40


def test_a_run_that_stopped_earlier_is_not_taken_for_a_longer_one(tmp_path: Path) -> None:
    for n in (10, 20, 20):
        compare_command("digits", ["fedavg"], 1, [*QUICK, NOBODY_NEW, f"evaluate.budget.updates={n}"], tmp_path, jobs=1)
        assert RunFolder(tmp_path / "fedavg-seed0").metrics()[-1]["client_updates"] == n
    compare_command("digits", ["fedavg"], 1, [*QUICK, NOBODY_NEW], tmp_path, jobs=1)
    assert RunFolder(tmp_path / "fedavg-seed0").metrics()[-1]["round"] == 4
    with pytest.raises(InputError, match=r"other evaluate\.budget\.updates"):
        compare_command("digits", ["fedavg"], 1, [*QUICK, NOBODY_NEW, "evaluate.budget.updates=5"], tmp_path, jobs=1)


def test_names_may_have_spaces_between_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = [x for s in QUICK for x in ("--set", s)]
    with pytest.raises(SystemExit) as end:
        main(["compare", "digits", "-a", "fedavg, ifca,fedavg", *sets, "--out", str(tmp_path), "-j", "1"])
    assert not end.value.code
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:3]] == ["fedavg", "ifca"]


@pytest.mark.slow
def test_runs_in_parallel_equal_runs_in_a_row(tmp_path: Path) -> None:
    for jobs in (1, 2):
        compare_command("digits", ["fedavg", "cfl"], 2, QUICK, tmp_path / str(jobs), jobs=jobs)
    models = list((tmp_path / "1").glob("*/models/*"))
    assert len(models) >= 4  # of two algorithms with two seeds
    for path in models:
        assert path.read_bytes() == (tmp_path / "2" / path.relative_to(tmp_path / "1")).read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sweeps": ["ifca.k"]}, "a sweep is written"),
        ({"sweeps": ["cfl.eps1=1,2"]}, "no algorithm of this comparison has the swept setting cfl.eps1"),
        ({"sets": ["evaluate.client_updates=9"]}, "write that, or --budget updates=N"),
        ({"sets": ["algorithm.name=ifca"]}, "--algorithms ifca"),
        ({"sweeps": ["seed=1,2"]}, "several seeds are --seeds N"),
        ({"n_seeds": 0}, "--seeds must be at least 1"),
        ({"n_seeds": 10**11}, "at most 10,000 runs; take fewer seeds .got 100000000000., values or algorithms"),
        ({"sweeps": [f"{key}={','.join(map(str, range(1, 200)))}" for key in ("ifca.k", "rounds")]}, "at most 10,000 runs"),
        ({"algorithms": ["fedavg", " ifca"]}, "unknown algorithm ' ifca'.*did you mean ifca"),
        ({"algorithms": ["fedavg", "nope"]}, "unknown algorithm 'nope'"),
    ],
)
def test_mistakes(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    arguments = {
        "recipe": "digits",
        "algorithms": ["fedavg", "ifca"],
        "n_seeds": 1,
        "sets": QUICK,
        "out": tmp_path / "c",
        **change,
    }
    with pytest.raises(InputError, match=message):
        compare_command(**arguments)
    assert not (tmp_path / "c").exists()


def test_a_process_that_failed_is_not_said_to_have_lacked_memory(tmp_path: Path) -> None:
    assert "memory" not in _died("ifca-seed0", Died(1)).problem
    assert "memory" in _died("ifca-seed0", Died(-9)).problem
    (tmp_path / "file").touch()
    [job] = plan_runs("digits", ["fedavg"], 1, ["rounds=1"], "full", [])
    assert _run_one("r", job.job, tmp_path / "file").problem == f"{tmp_path / 'file' / 'r'}: Not a directory"


def test_an_infinite_score_is_shown_as_such() -> None:
    """Clusters whose centres coincide have no finite Davies-Bouldin score."""
    table = comparison_table([("a", [{"accuracy": 0.5, "wadb": 1.0}, {"accuracy": 0.7, "wadb": float("inf")}])])
    assert table.rows == [["a", "60.0 ± 14.1", "inf"]]
