"""`fedgwc run`: what was probably meant, why nothing was divided, and going on with a run."""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path

import pytest
import torch

from fedgwc.cli.why import why_of
from fedgwc.runs.folder import RunFolder
from tests.cli.conftest import Command, refused
from tests.cli.test_assign import client

AUTO = ["--set", "algorithm.name=auto", "--set", "algorithm.rate=1.0"]


def test_calling_twice_does_not_say_things_twice(fedgwc: Command) -> None:
    log = logging.getLogger("fedgwc")
    before = list(log.handlers)
    assert fedgwc("list").code == 0
    assert log.handlers == before


def test_what_was_probably_meant(fedgwc: Command, run_folder: Path) -> None:
    """Settings of an algorithm that does not run, or of another data set; the folder of a run in place of a recipe."""
    whose = "ifca.k is a setting of ifca, and this runs auto; add --set algorithm.name=ifca"
    refused(fedgwc("run", "digits", "--set", "ifca.k=3"), whose)
    refused(fedgwc("run", "--set", "ifca.k=3"), "this runs fedavg and fedgwc and auto")
    refused(
        fedgwc("run", "digits", "--set", "data.path=own"),
        "data set digits has no setting 'path', arrays has: choose one by data.name",
    )
    for given in (run_folder, run_folder / "config.json"):
        refused(fedgwc("run", given), f"to go on with the run: fedgwc run --resume --out {run_folder}")
    refused(fedgwc("run", "digits", "--set", "auto.beta=1.0"), "auto has no setting 'beta'")


@pytest.mark.parametrize("n_clients", [1, 5])
def test_clients_too_few_to_be_divided_are_told_so(n_clients: int, fedgwc: Command, tmp_path: Path) -> None:
    """Not that more rounds would do it; and a report can be made of them."""
    few = f"{n_clients} clients are never divided, it takes at least 6 (with algorithm.min_size=3)"
    groups = f"data.groups=[{{clients={n_clients}}}]"
    answer = fedgwc("run", "digits", "--set", groups, "--set", "rounds=3", "--out", tmp_path / "few")
    assert f"auto: no division: {few}\n" in answer.out
    assert few in answer.err
    assert few in fedgwc("replay", tmp_path / "few").out
    assert fedgwc("report", tmp_path / "few", "--out", tmp_path / "few.html").code == 0
    assert f"No attempt: {few}." in (tmp_path / "few.html").read_text()


def test_a_run_says_why(fedgwc: Command, tmp_path: Path) -> None:
    settings = [*AUTO, "--set", "model.hidden=[8]"]
    answer = fedgwc("run", "digits", *settings, "--set", "rounds=2", "--out", tmp_path / "a")
    assert "\nauto: no division yet: the first window of rounds has not come to its end\n" in answer.out
    more = [*settings, "--set", "algorithm.contrast=1e9", "--set", "algorithm.drift=1e9"]
    answer = fedgwc("run", "digits", *more, "--set", "rounds=21", "--out", tmp_path / "b")
    assert re.search(r"^auto: no division by round 20: .*contrast", answer.out, re.M)
    again = fedgwc("run", "--resume", "--out", tmp_path / "b")
    assert "\nauto: no division by round 20" in again.out
    row = {"round": 3, "divides": False, "why": "\x1b[2Jwiped, " + 300 * "x"}  # reasons do not steer a terminal
    (tmp_path / "b" / "verdicts.jsonl").write_text(json.dumps(row) + "\n")
    assert why_of(RunFolder(tmp_path / "b")) == "no division by round 3: \N{REPLACEMENT CHARACTER}[2Jwiped, " + 300 * "x"
    (tmp_path / "b" / "verdicts.jsonl").write_text('{"round": 3}\n')
    assert "is not as it was written" in fedgwc("run", "--resume", "--out", tmp_path / "b").err
    answer = fedgwc("run", "digits", "--set", "algorithm.name=fedavg", "--set", "rounds=2", "--out", tmp_path / "c")
    assert "division" not in answer.out


@pytest.fixture
def from_a_gpu(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same run as a machine with a CUDA device would have left it, seen on one without."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    copy = shutil.copytree(run_folder, tmp_path / "from a gpu")
    config = json.loads((copy / "config.json").read_text())
    config["experiment"]["engine"]["device"] = "cuda"
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def test_a_run_from_a_gpu_is_read_without_one(fedgwc: Command, from_a_gpu: Path, run_folder: Path, tmp_path: Path) -> None:
    assert fedgwc("replay", from_a_gpu).out == fedgwc("replay", run_folder).out
    new = client(tmp_path / "new.npz", 0)
    assert fedgwc("assign", from_a_gpu, new).code == 0


def test_training_on_a_gpu_that_is_not_there(fedgwc: Command, from_a_gpu: Path, tmp_path: Path) -> None:
    asked = ("--set", "engine.device=cuda", "--out", tmp_path / "none")
    for command in ("run", "compare"):
        refused(fedgwc(command, "digits", *asked), "PyTorch sees no CUDA device here; use another: --set engine.device=cpu")
    refused(fedgwc("run", "--resume", "--out", from_a_gpu), "--set engine.device=cpu")
    assert not (tmp_path / "none").exists()
    for path in (from_a_gpu / "state").iterdir():
        path.unlink()  # they name a run by its config.json, which the fixture has changed
    (from_a_gpu / "labels.csv").unlink()  # a finished run would not start again
    assert fedgwc("run", "--resume", "--out", from_a_gpu, "--set", "engine.device=cpu").code == 0


def test_resuming_names_the_algorithm_and_says_if_nothing_was_left_to_do(
    fedgwc: Command, run_folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(run_folder, tmp_path / "again")
    answer = fedgwc("run", "--resume", "--out", copy)
    assert answer.code == 0, answer.err
    assert f"{copy} was already finished, with round 40" in answer.err
    assert re.search(r"^fedgwc +\d+ ", answer.out, re.M), answer.out
    longer = fedgwc("run", "--resume", "--out", copy, "--set", "rounds=41")
    assert longer.code == 0, longer.err
    assert "already finished" not in longer.err


def test_a_run_is_made_longer_by_its_folder_alone(fedgwc: Command, run_folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run_folder, tmp_path / "longer")
    answer = fedgwc("run", "--resume", "--out", copy, "--set", "rounds=43", "--set", "about=longer", "--set", "evaluate.every=41")
    assert answer.code == 0, answer.err
    assert [row["round"] for row in RunFolder(copy).metrics()] == [40, 41, 43]
    refused(fedgwc("run", "--resume", "--out", copy, "--set", "local.lr=0.1"), "holds a run with other local")
    refused(fedgwc("run", "--resume", "--out", copy, "--set", "engine.dtype=float64"), "holds a run with other engine.dtype")
    refused(fedgwc("run", "--resume", "--set", "rounds=50"), "--resume needs --out")
