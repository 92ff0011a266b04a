"""Recipes at other scales, and the made data they then run on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedgwc.cli.app import main
from fedgwc.core.errors import InputError
from fedgwc.data.sources import synthetic
from fedgwc.data.sources.cifar import CIFAR100
from fedgwc.data.sources.cifar_sets import cifar100
from fedgwc.data.sources.fedvision import INATURALIST
from fedgwc.runs.scale import scaled, scaled_experiment

RECIPE: dict[str, Any] = {
    "recipe": "r",
    "rounds": 250,
    "data": {
        "name": "cifar100",
        "train_size": 500,
        "groups": [{"clients": 90, "train_size": 450}, {"clients": 10, "noise": 1.0}],
    },
    "model": {"name": "mobilenet_v2", "weights": "w.pth"},
    "local": {"steps": 7, "batch": 64, "lr": 0.1},
}


def test_full_changes_nothing_and_short_only_the_rounds() -> None:
    assert scaled(RECIPE, "full") == RECIPE
    assert scaled(RECIPE, "short") == {**RECIPE, "recipe": "r-short", "rounds": 25}
    assert scaled({**RECIPE, "rounds": 3}, "short")["rounds"] == 1


def test_smoke_is_small_and_keeps_the_kind_of_clients() -> None:
    before = repr(RECIPE)
    got = scaled(RECIPE, "smoke", Path("/m"))
    assert repr(RECIPE) == before
    assert got["rounds"] == 3
    assert got["data"] == {
        "name": "cifar100",
        "train_size": 8,
        "groups": [{"clients": 11}, {"clients": 2, "noise": 1.0}],
        "root": "/m",
        "images": [1000, 500],
    }
    assert got["model"] == {"name": "mobilenet_v2"}
    assert got["local"] == {"steps": 2, "batch": 16, "lr": 0.1}
    assert "root" not in scaled(RECIPE, "smoke")["data"]


def test_settings_win_over_the_scale(tmp_path: Path) -> None:
    job = scaled_experiment("cifar100", ["rounds=7", "local.steps=4", "data.root=elsewhere"], "smoke", tmp_path)
    assert (job.rounds, job.local.steps, job.local.batch) == (7, 4, 16)
    assert job.tables["data"]["root"] == "elsewhere"
    assert "images" not in job.tables["data"]  # real data then
    assert list(tmp_path.iterdir()) == []


def test_wrong_scales_and_recipes_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown scale 'smok' .did you mean smoke.*; choose from full, short, smoke"):
        scaled_experiment("digits", [], "smok")
    with pytest.raises(InputError, match=r"data.groups\[0\] needs clients"):
        scaled({**RECIPE, "data": {"name": "digits", "groups": [{}]}}, "smoke")
    with pytest.raises(InputError, match=r"data.train_size must be a whole number"):
        scaled_experiment("digits", ["data.train_size=x"], "smoke")


def test_made_data_are_written_once(tmp_path: Path) -> None:
    synthetic.write("cifar100", tmp_path)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    synthetic.write("cifar100", tmp_path)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before
    assert [p.name for p in tmp_path.iterdir()] == ["cifar100"]


def test_a_cifar_of_another_size_must_be_announced(tmp_path: Path) -> None:
    synthetic.write_cifar(CIFAR100, tmp_path / "cifar-100-python", (20, 10))
    with pytest.raises(InputError, match="get the official file"):
        cifar100(seed=0, root=str(tmp_path))
    with pytest.raises(InputError, match=r"data.images must be"):
        cifar100(seed=0, root=str(tmp_path), images=(20,))


def fedgwc(*args: str, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fedgwc", *args]
    environment = {**os.environ, "FEDGWC_DATA": str(cwd / "data")}
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


# No worker processes: they take longer to start than these runs, and the peak of one process is the whole peak.
ALONE = ("--set", "engine.how=one-by-one", "--set", "engine.threads=1")


def test_the_command_takes_a_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDGWC_DATA", str(tmp_path / "data"))
    with pytest.raises(SystemExit) as end:
        main(["compare", "femnist", "-a", "fedavg,ifca", "--scale", "smoke", *ALONE, "-o", "c", "-j", "1"])
    assert not end.value.code
    assert "ifca" in capsys.readouterr().out
    assert (tmp_path / "data" / synthetic.FOLDER / "emnist").is_dir()
    with pytest.raises(SystemExit) as end:
        main(["run", "femnist", "--scale", "tiny"])
    assert capsys.readouterr().err == "fedgwc: unknown scale 'tiny'; choose from full, short, smoke\n"
    assert end.value.code == 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is measured in the units of Linux")
def test_thousands_of_users_fit_in_two_gib(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image", reason="photographs need the extra `images`")
    synthetic.write_users(INATURALIST, tmp_path / "inaturalist", 2714, images=5, n_classes=1203)
    process = fedgwc("run", "inaturalist", "--scale", "smoke", "--set", f"data.root={tmp_path}", *ALONE, cwd=tmp_path)
    assert process.stderr is not None
    err = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.communicate()
    assert process.returncode == 0, err
    assert "round 3/3" in err
    assert "2714 of 2714 users" in err
    assert usage.ru_maxrss < 2 * 2**20  # KiB
