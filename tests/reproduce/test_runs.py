"""Tables and figures run at scale smoke, from the first run to the verdict."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedgwc.cli.app import main
from fedgwc.cli.reproduce import reproduce_command
from fedgwc.data.sources import synthetic
from fedgwc.reproduce.paper import paper

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(autouse=True)
def _made_data_go_there(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDGWC_DATA", str(data))


def contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


def read_csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_a_table_runs_and_goes_on_where_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reproduce_command(["table-clustering"], "smoke", None, tmp_path, jobs=1)
    out = capsys.readouterr()
    assert "16/16 femnist-smoke-fedprox-seed0: done" in out.err
    rows = read_csv(tmp_path / "table-clustering-smoke.csv")
    assert len(rows) == 16 * 3 + 22  # three accuracies per method, two of them FedGWC, and the scores
    assert {r["verdict"].split(" (")[0] for r in rows} == {"partial"}
    assert (tmp_path / "table-clustering-smoke.md").read_text().startswith("| data | method | paper % |")

    interrupted = tmp_path / "runs" / "cifar100-smoke-cfl-seed0"
    (interrupted / "per_client.npz").unlink()  # as if it had been stopped before its end
    before = contents(tmp_path / "runs")
    reproduce_command(["table-clustering"], "smoke", None, tmp_path, jobs=1)
    again = capsys.readouterr()
    assert "1/1 cifar100-smoke-cfl-seed0: done" in again.err
    assert again.out == out.out
    after = contents(tmp_path / "runs")
    assert {p: c for p, c in after.items() if interrupted not in p.parents} == {
        p: c for p, c in before.items() if interrupted not in p.parents
    }


def test_a_missing_data_set_does_not_stop_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "only-emnist"
    synthetic.write("emnist", root)
    reproduce_command(["table-aggregators"], "smoke", 1, tmp_path / "o", [f"data.root={root}"], jobs=1)
    rows = read_csv(tmp_path / "o" / "table-aggregators-smoke.csv")
    verdicts = {recipe: {r["verdict"] for r in rows if r["recipe"] == recipe} for recipe in ("cifar100", "femnist")}
    assert verdicts["cifar100"] == {"not run (needs cifar100: fedgwc data prepare cifar100)"}
    assert verdicts["femnist"] == {"partial (made data, 3 of 3,000 rounds, 1 of 3 seeds)"}


def test_without_any_data_nothing_is_run_and_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reproduce_command(["fig-hom"], "full", 1, tmp_path / "o", [f"data.root={tmp_path}"], jobs=1)
    assert "not run (needs cifar10: fedgwc data prepare cifar10)" in capsys.readouterr().out
    assert {p.name for p in (tmp_path / "o").iterdir()} == {"fig-hom-full.md", "fig-hom-full.csv"}


def test_a_figure_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    reproduce_command(["fig-mechanism"], "smoke", None, tmp_path, jobs=1)
    assert "Drawn: " in capsys.readouterr().out
    assert {p.name for p in (tmp_path / "fig-mechanism-smoke").iterdir()} == {
        "fig-mechanism-reward.png",
        "fig-mechanism-reward.svg",
    }


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "table-1", "-o", str(tmp_path / "o")])
    assert stopped.value.code == 2
    assert "unknown table or figure 'table-1' (did you mean table-k?); choose from fig-accuracy" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["results", "page", "--from", str(RESULTS), "-o", str(tmp_path / "docs" / "page.md"), "--figures"])
    assert stopped.value.code == 0
    assert (tmp_path / "docs" / "page.md").read_text(encoding="utf-8").startswith("# Results beside the paper's")
    assert (tmp_path / "docs" / "figures" / "fig-tree-tree.png").is_file()


@pytest.mark.slow
def test_every_table_and_figure_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    reproduce_command(["all"], "smoke", None, tmp_path, presets=["auto", "fedgwc"])
    out = capsys.readouterr().out
    assert "not run" not in out
    for name, entry in paper().items():
        assert (tmp_path / f"{name}-smoke.md").stat().st_size
        # at this scale nothing splits, and one cluster has no pair whose classes could be compared
        assert any((tmp_path / f"{name}-smoke").glob("*.png")) == (bool(entry.pictures) and name != "fig-classes")


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path: Path) -> None:
    settings = ["--set", "rounds=80", "--set", "evaluate.every=1"]
    command = [sys.executable, "-m", "fedgwc", "reproduce", "fig-mse", "--scale", "smoke", *settings, "-o", "o", "-j", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    metrics = tmp_path / "o" / "runs" / "cifar10-smoke-fedgwc-seed0" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not metrics.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "The same command goes on from here" in stderr
    done = len(metrics.read_text().splitlines())
    assert 0 < done < 80
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert again.returncode == 0, again.stderr
    assert len(metrics.read_text().splitlines()) == 80
