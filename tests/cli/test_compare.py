"""Comparisons: what is tried, what is best, and equal footing."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedgwc
from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.fedavg import OneGroup
from fedgwc.algorithms.method import Method
from fedgwc.cli.app import main
from fedgwc.cli.compare import compare_command
from fedgwc.comparison.plan import plan_runs
from fedgwc.comparison.scoring import Scoring
from fedgwc.core.errors import InputError
from fedgwc.core.types import Rng
from fedgwc.data import DATASETS, Federation, digits
from fedgwc.runs.batch import _died, _run_one
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.processes import Died
from fedgwc.runs.tables import comparison_table

QUICK = ["rounds=4", "data.train_size=6", "evaluate.every=4"]
NOBODY_NEW = "data.newcomers=0.0"


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_a_sweep_reports_the_best_on_validation_beside_what_was_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare_command("digits", ["fedavg", "ifca"], 1, QUICK, tmp_path, sweeps=["ifca.k=2,3"], jobs=1)
    tried = table(tmp_path / "everything-tried.csv")
    assert [row["method"] for row in tried] == ["fedavg", "ifca k=2", "ifca k=3"]
    best = max(tried[1:], key=lambda row: float(row["validation accuracy %"]))
    assert [row["reported"] for row in tried] == ["yes", *("yes" if row is best else "no" for row in tried[1:])]
    rows = table(tmp_path / "comparison.csv")
    assert [row["method"] for row in rows] == ["fedavg", best["method"]]
    assert "test data chose nothing" in capsys.readouterr().out


def test_nothing_is_chosen_without_validation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = [*QUICK, "rounds=1", "data.validation=0"]
    compare_command("digits", ["ifca"], 1, sets, tmp_path, sweeps=["ifca.k=2,3"], jobs=1)
    assert [row["method"] for row in table(tmp_path / "comparison.csv")] == ["ifca k=2", "ifca k=3"]
    assert "without validation data none can be chosen (set data.validation=0.2" in capsys.readouterr().out


def test_swept_data_are_conditions_and_never_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweeps = ["data.train_size=6,8", "ifca.k=2,3"]
    compare_command("digits", ["fedavg", "ifca", "cfl"], 1, [*QUICK, "rounds=1"], tmp_path, sweeps=sweeps, jobs=1)
    rows = table(tmp_path / "comparison.csv")
    assert [(row["data.train_size"], row["algorithm"]) for row in rows] == [
        (size, name) for size in ("6", "8") for name in ("fedavg", "ifca", "cfl")
    ]
    page = (tmp_path / "comparison.md").read_text()
    assert page.index("# train_size=6") < page.index("# train_size=8") < page.index("# Ranks")
    assert "Nemenyi" in capsys.readouterr().out


def test_switches_and_text_are_swept_too(tmp_path: Path) -> None:
    sweeps = ["algorithm.second_look=true,false", 'model.name="mlp"']
    compare_command("digits", ["auto"], 1, [*QUICK, "rounds=1"], tmp_path, sweeps=sweeps, jobs=1)
    tried = table(tmp_path / "everything-tried.csv")
    assert [(r["method"], r["condition"]) for r in tried] == [(f"auto second_look={v}", "name=mlp") for v in (True, False)]


def test_one_seed_has_no_interval_and_three_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare_command("digits", ["alone", "fedavg"], 1, [*QUICK, "rounds=1"], tmp_path, jobs=1)
    assert "One seed gives no interval" in capsys.readouterr().out
    compare_command("digits", ["alone", "fedavg"], 3, [*QUICK, "rounds=1"], tmp_path, jobs=1, reference="alone")
    assert "over 3 seeds (t = 4.3)" in capsys.readouterr().out
    alone, fedavg = table(tmp_path / "comparison.csv")
    assert (alone["verdict"], fedavg["reference"], fedavg["pairs"]) == ("reference", "alone", "3")
    scores = [[RunFolder(tmp_path / f"{n}-seed{s}").metrics()[-1]["accuracy"] for s in range(3)] for n in ("fedavg", "alone")]
    differences = [a - b for a, b in zip(*scores, strict=True)]
    assert float(fedavg["difference"]) == pytest.approx(sum(differences) / 3)
    assert float(fedavg["difference_low"]) < float(fedavg["difference"]) < float(fedavg["difference_high"])
    assert 0 <= float(fedavg["better_than_alone"]) <= 1


def test_a_comparison_is_written_for_people_sheets_papers_and_frames(tmp_path: Path) -> None:
    compare_command("digits", ["fedavg", "ifca"], 1, [*QUICK, "rounds=1"], tmp_path, sweeps=["local.lr=0.1,0.2"], jobs=1)
    tex = (tmp_path / "comparison.tex").read_text()
    assert tex.count(r"\toprule") == tex.count(r"\bottomrule") == 3
    assert all(line.count("&") == line.count(" & ") for line in tex.splitlines())
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(tmp_path / "comparison.parquet")
    assert frame["score"].tolist() == pytest.approx([float(row["score"]) for row in table(tmp_path / "comparison.csv")])
    tidy = fedgwc.results(tmp_path)
    assert len(tidy) == 4  # runs of one evaluation
    assert set(tidy["algorithm.name"]) == {"fedavg", "ifca"}
    assert tidy.groupby("local.lr").size().to_dict() == {0.1: 2, 0.2: 2}
    assert tidy["accuracy"].between(0, 1).all()


def test_frames_without_pandas_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="its extra `frames`"):
        fedgwc.results(tmp_path)


class Breaks(OneGroup):
    """FedAvg that cannot train the seed 1."""

    def plan(self, state: Any, servers: Any, rate: float, engine: Any, rng: Rng) -> Any:
        if rng.seed == 1:
            raise ZeroDivisionError("no luck")
        return super().plan(state, servers, rate, engine, rng)


def test_what_fails_is_named_and_costs_nobody_else_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ALGORITHMS, "breaks", Method(Breaks()))
    command = ("digits", ["fedavg", "breaks"], 3, [*QUICK, "rounds=1"], tmp_path)
    with pytest.raises(SystemExit, match="1"):
        compare_command(*command, jobs=1)
    told = capsys.readouterr().err
    assert "breaks-seed1 failed: ZeroDivisionError: no luck" in told
    assert f"the same command with --out {tmp_path} does only these again" in told
    assert [row["pairs"] for row in table(tmp_path / "comparison.csv")] == ["0", "2"]
    assert "breaks-seed1: ZeroDivisionError: no luck" in (tmp_path / "comparison.md").read_text()
    monkeypatch.setitem(ALGORITHMS, "breaks", Method(OneGroup()))
    before = (tmp_path / "breaks-seed0" / "metrics.jsonl").stat().st_mtime_ns
    compare_command(*command, jobs=1)
    _fedavg, mended = table(tmp_path / "comparison.csv")
    assert (mended["pairs"], mended["difference"], mended["verdict"]) == ("3", "0.0", "no difference shown")
    assert (tmp_path / "breaks-seed0" / "metrics.jsonl").stat().st_mtime_ns == before


def test_where_all_runs_fail_the_mistake_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "breaks", Method(Breaks()))
    with pytest.raises(InputError, match="no luck"):
        compare_command("digits", ["breaks"], 1, [*QUICK, "rounds=1", "seed=1"], tmp_path, jobs=1)


def test_labels_of_test_samples_choose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all test labels shuffled, the same settings, rounds, clusters and models come out, and only test scores differ."""
    best = Scoring(when="best")
    sets = ["rounds=6", "evaluate.every=1", "data.train_size=12", "data.groups=[{clients=20},{clients=10,relabel=1}]"]
    for name in "ab":
        compare_command("digits", ["ifca", "auto"], 1, sets, tmp_path / name, sweeps=["ifca.k=2,3"], jobs=1, scoring=best)
        monkeypatch.setitem(DATASETS, "digits", shuffled_digits)
    one, other = (table(tmp_path / name / "everything-tried.csv") for name in "ab")
    score = "test accuracy %"
    assert [{**row, score: ""} for row in one] == [{**row, score: ""} for row in other]
    assert [row[score] for row in one] != [row[score] for row in other]
    for folder in sorted(path.parent for path in (tmp_path / "a").glob("*/config.json")):
        twin = tmp_path / "b" / folder.name
        rounds = [best.row(RunFolder(path).metrics())["round"] for path in (folder, twin)]
        assert rounds[0] == rounds[1]
        for path in (folder / "labels.csv", *folder.glob("models/*")):
            assert path.read_bytes() == (twin / path.relative_to(folder)).read_bytes()


@wraps(digits)
def shuffled_digits(*args: Any, **settings: Any) -> Federation:
    """Digits with the labels of all test samples shuffled, newcomers' too."""
    federation = digits(*args, **settings)
    tested, y = np.unique(federation.test.flat), federation.y.clone()
    assert not np.isin(tested, federation.train.flat).any()
    y[tested] = y[np.random.default_rng(9).permutation(tested)]
    return replace(federation, y=y)


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
    quick = [*QUICK, "data.newcomers=0"]
    for n in (10, 20, 20):
        compare_command("digits", ["fedavg"], 1, [*quick, f"evaluate.budget.updates={n}"], tmp_path, jobs=1)
        assert RunFolder(tmp_path / "fedavg-seed0").metrics()[-1]["client_updates"] == n
    compare_command("digits", ["fedavg"], 1, quick, tmp_path, jobs=1)
    assert RunFolder(tmp_path / "fedavg-seed0").metrics()[-1]["round"] == 4
    with pytest.raises(InputError, match=r"other evaluate\.budget\.updates"):
        compare_command("digits", ["fedavg"], 1, [*quick, "evaluate.budget.updates=5"], tmp_path, jobs=1)


def test_names_may_have_spaces_between_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = [x for s in QUICK for x in ("--set", s)] + ["--seeds", "1"]
    with pytest.raises(SystemExit) as end:
        main(["compare", "digits", "-a", "fedavg, ifca,fedavg", *sets, "--out", str(tmp_path), "-j", "1"])
    assert not end.value.code
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[3:5]] == ["fedavg", "ifca"]


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
        ({"reference": "cfl"}, "--reference must be one of the methods compared, fedavg, ifca; got 'cfl'"),
        ({"scoring": Scoring(when="best"), "sets": [*QUICK, "data.validation=0"]}, r"--when best reads.*data\.validation=0\.2"),
        ({"resume": True}, "--resume needs --out with its folder"),
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
