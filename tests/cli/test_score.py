"""`fedgwc score`: every metric, and one sentence for a mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Command, refused


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([*lines, ""]))
    return path


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    counts = write(tmp_path / "counts.csv", "client,a,b,c", "p,9,0,0", "q,0,9,0", "r,3,3,3", "s,3,4,2")
    return counts, write(tmp_path / "labels.csv", "client,cluster,group", "s,x,2", "r,x,2", "q,y,1", "p,y,1")


def test_score_prints_every_metric(fedgwc: Command, tables: tuple[Path, Path]) -> None:
    """One class each against evenly mixed: ranked frequencies tell them apart, and the clusters are the groups."""
    answer = fedgwc("score", *tables)
    assert answer.code == 0, answer.err
    assert answer.out.startswith("4 clients, 3 classes, 2 clusters of 2 2\n")
    value = dict(re.findall(r"^(.*?\)|Rand index|adjusted Rand index) +(-?[\d.]+)", answer.out, re.M))
    assert value["Rand index"] == value["adjusted Rand index"] == "1.0000"
    assert float(value["Wasserstein adjusted silhouette (WAS)"]) > 0.8
    assert float(value["Wasserstein adjusted Davies-Bouldin (WADB)"]) < 0.2


def test_score_of_a_run(fedgwc: Command, run_folder: Path) -> None:
    answer = fedgwc("score", run_folder / "counts.csv", run_folder / "labels.csv")
    assert answer.code == 0
    assert answer.out.startswith("28 clients, 10 classes, ")
    assert "adjusted Rand index" in answer.out


def test_score_of_one_cluster_says_why_there_is_no_number(fedgwc: Command, tables: tuple[Path, Path], tmp_path: Path) -> None:
    labels = write(tmp_path / "one.csv", "client,cluster", *(f"{c},0" for c in "pqrs"))
    answer = fedgwc("score", tables[0], labels)
    assert answer.code == 0
    assert "One cluster only" in answer.out
    assert "Rand" not in answer.out  # no true groups given


@pytest.mark.parametrize(
    ("counts", "labels", "message"),
    [
        (None, ["client,cluster", "p,0", "q,0", "r,1", "z,1"], "must name the same clients"),
        (None, ["client,cluster", "p,0", "p,0", "r,1", "s,1"], "names a client twice"),
        (None, ["client,cluster", "p,0,1", "q,0"], "lines of the same length"),
        (None, ["client,cluster,group,more", "p,0,0,0"], "must have the columns"),
        (None, [], "must have a header line"),
        (["client,a,b", "p,x,1", "q,1,1", "r,1,1", "s,1,1"], None, "class counts must be numbers"),
        (["client,a,b", "p,-1,1", "q,1,1", "r,1,1", "s,1,1"], None, "finite and >= 0"),
        (["client", "p", "q", "r", "s"], None, "at least two class columns"),
        (["client,a", "p,1", "q,1", "r,1", "s,1"], None, "all samples of a client: class counts are unknown"),
    ],
    ids=["other clients", "twice", "ragged", "columns", "empty", "words", "negative", "no class", "one class"],
)
def test_score_mistakes(
    fedgwc: Command, tables: tuple[Path, Path], tmp_path: Path, counts: list[str] | None, labels: list[str] | None, message: str
) -> None:
    first = tables[0] if counts is None else write(tmp_path / "c.csv", *counts)
    second = tables[1] if labels is None else write(tmp_path / "l.csv", *labels)
    refused(fedgwc("score", first, second), message)


def test_score_of_files_that_are_not_there(fedgwc: Command, tables: tuple[Path, Path], tmp_path: Path) -> None:
    refused(fedgwc("score", tmp_path / "none.csv", tables[1]), "cannot be read as csv")
    refused(fedgwc("score", tables[0], tmp_path), "cannot be read as csv")
    refused(fedgwc("score", "/dev/null", tables[1]), "/dev/null is a device")  # as /dev/zero is, which has no end
