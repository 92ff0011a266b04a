"""Clients' names, from the files of somebody's own data to the run folder and the report. They may hold anything."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgwc.cli.app import main
from fedgwc.core.errors import InputError
from fedgwc.core.text import LONGEST, csv_cell, readable
from fedgwc.data import Federation, from_arrays
from fedgwc.report import build
from fedgwc.report.load import load
from fedgwc.report.page import html
from fedgwc.runs.experiment import experiment
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import run
from tests.conftest import Listener

FILES = {  # of a client -> what it is called in tables
    "-2 wards": "'-2 wards",
    '<img src=x onerror="alert(1)">': '<img src=x onerror="alert(1)">',
    '=HYPERLINK("x")': '\'=HYPERLINK("x")',
    os.fsdecode(b"caf\xe9"): "caf\N{REPLACEMENT CHARACTER}",
    "hospital_2": "hospital_2",
    "hospital_10": "hospital_10",
    "m²": "m²",
    "two\nlines": "two\N{REPLACEMENT CHARACTER}lines",
    "Łódź, ward 1": "Łódź, ward 1",
}
TABLES: dict[str, Any] = {
    "rounds": 6,
    "model": {"name": "mlp", "hidden": [4]},
    "local": {"steps": 3, "batch": 8, "lr": 0.2},
    "algorithm": {"name": "ifca", "k": 2, "rate": 1.0},
}


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every other client has its two classes swapped."""
    folder, rng = tmp_path_factory.mktemp("own"), np.random.default_rng(0)
    for k, name in enumerate(FILES):
        x = rng.normal(size=(40, 3)).astype(np.float32)
        np.savez(folder / f"{name}.npz", x=x, y=(x[:, 0] > 0) ^ (k % 2))
    return folder


def of(folder: Path, **changes: Any) -> dict[str, Any]:
    return {**TABLES, "data": {"name": "arrays", "path": str(folder), "n_classes": 2}, **changes}


@pytest.fixture(scope="module")
def finished(hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(experiment(of(hospitals)), tmp_path_factory.mktemp("runs") / "r").folder


def labels(folder: Path) -> list[dict[str, str]]:
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_labels_say_who_belongs_together(finished: Path) -> None:
    rows = labels(finished)
    assert [row["client"] for row in rows] == [str(k) for k in range(len(FILES))]
    assert {row["name"] for row in rows} == set(FILES.values())
    two = [row["name"] for row in rows if row["name"].startswith("hospital")]
    assert two == ["hospital_2", "hospital_10"]  # by number, as clients are


def test_a_name_that_a_spreadsheet_would_compute_is_text_there_and_itself_elsewhere(finished: Path) -> None:
    assert all(row["name"][0] not in "=+-@" for row in labels(finished))
    assert {"-2 wards", '=HYPERLINK("x")'} <= set(load(finished).names)


def test_the_report_lists_clients_by_name_and_runs_nothing(finished: Path) -> None:
    page = build([finished])
    [members] = [s for s in page.sections if s.id == "members"]
    [table] = members.tables
    assert table.head == ["name", "client", "cluster", "samples", "accuracy %"]
    names, where = zip(*((row[0].text, row[2].value) for row in table.rows), strict=True)
    assert sorted(names) == sorted(readable(FILES))
    assert list(where) == sorted(where)  # cluster by cluster
    assert {row[3].value for row in table.rows} == {26.0}  # of 32, a fifth is for validation
    text = html(page)
    assert "<img src=x" not in text
    assert "&lt;img src=x onerror=&#34;alert(1)&#34;&gt;" in text
    text.encode()  # whatever bytes the names of files were


def test_score_and_assign_read_a_run_with_names(finished: Path, hospitals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ("score", finished / "counts.csv", finished / "labels.csv"),
        ("assign", finished, next(hospitals.iterdir())),
    ):
        with pytest.raises(SystemExit) as end:
            main([str(a) for a in arguments])
        assert end.value.code == 0
    assert capsys.readouterr().out.startswith("9 clients, 2 classes, ")


def test_a_run_that_an_earlier_version_began_ends_with_names(hospitals: Path, finished: Path, tmp_path: Path) -> None:
    job = experiment(of(hospitals))
    run(experiment(of(hospitals, rounds=3)), tmp_path / "r")
    counts = job.federation().class_counts()
    RunFolder(tmp_path / "r").save_clients(counts, counts.sum(1), None)
    shutil.rmtree(tmp_path / "r" / "models")
    run(job, tmp_path / "r", resume=True)
    for name in ("labels.csv", "clients.npz"):
        assert (tmp_path / "r" / name).read_bytes() == (finished / name).read_bytes()


def test_without_names_nothing_is_different(tmp_path: Path) -> None:
    x, y = np.arange(24, dtype=np.float32).reshape(12, 2), np.arange(12) % 2
    np.savez(tmp_path / "all.npz", x=x, y=y, client=np.arange(12) // 4)  # numbers that say what is known anyway
    folder = run(experiment(of(tmp_path / "all.npz")), tmp_path / "r").folder
    assert (folder / "labels.csv").read_text().startswith("client,cluster,group\n0,")
    assert set(np.load(folder / "clients.npz")) == {"counts", "sizes"}
    assert load(folder).names == ()
    assert "members" not in {s.id for s in build([folder]).sections}


@pytest.mark.parametrize("names", [np.array(["a", "b"]), np.zeros(9), np.array([["a"]] * 9)], ids=["few", "numbers", "pairs"])
def test_names_that_cannot_be_those_of_the_clients_are_left_out(names: np.ndarray, finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    shutil.copytree(finished, folder)
    known = {**np.load(folder / "clients.npz"), "names": names}
    np.savez(folder / "clients.npz", **known)
    assert load(folder).names == ()


def test_who_fails_is_named(tmp_path: Path) -> None:
    for name, scale in (("berlin", 1.0), ("paris", 1e30), ("rome", 1.0)):
        np.savez(tmp_path / name, x=np.full((8, 2), scale, np.float32), y=np.arange(8) % 2)
    watcher = Listener()
    run(experiment(of(tmp_path, rounds=1, algorithm={"name": "fedavg", "rate": 1.0})), tmp_path / "r", progress=watcher)
    assert watcher.heard == ["client 1 (paris) failed in round 1 (its model or loss is not finite) and was left out"]


def test_every_client_has_a_name_or_none_has() -> None:
    whole = from_arrays(np.zeros((6, 1), np.float32), np.zeros(6, int), ["a", "a", "b", "b", "c", "c"])
    with pytest.raises(InputError, match="2 names came for 3 clients"):
        Federation(whole.x, whole.y, whole.train, whole.test, 1, client_names=("a", "b"))


def test_readable() -> None:
    assert readable(["b", "a\x1b[2J", "x" * 999]) == ("b", "a\N{REPLACEMENT CHARACTER}[2J", "x" * LONGEST)
    assert readable(["0", "1"]) == readable([]) == ()
    assert readable(["1", "0"]) == ("1", "0")


@pytest.mark.parametrize("name", ["=1", "+1", "-1", "@a", "\N{FULLWIDTH EQUALS SIGN}1"])
def test_formulas_begin_with_an_apostrophe(name: str) -> None:
    assert csv_cell(name) == f"'{name}"
    assert csv_cell(f"a{name}") == f"a{name}"
    assert csv_cell("") == ""
