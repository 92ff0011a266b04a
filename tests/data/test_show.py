"""`fedgwc data show`: a federation as a picture."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgwc.cli.app import main
from fedgwc.cli.show import binned, columns, distances, random_distances, some_of_each, summary
from fedgwc.data import PARTITIONS, Group, digits


def told(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["data", "show", *args])
    return int(end.value.code or 0), *capsys.readouterr()


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, list[str]]:
    """What a partition cannot do without, for the digits."""
    np.savez(tmp_path / "writers.npz", client=np.arange(1797) % 20)
    (tmp_path / "rows.json").write_text(json.dumps([list(range(k, 1797, 20)) for k in range(20)]))
    found = {"natural": f"column={tmp_path / 'writers.npz'}", "file": f"path={tmp_path / 'rows.json'}"}
    return {name: ["--set", f"data.groups.0.{setting}"] for name, setting in found.items()}


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_partition_can_be_drawn(name: str, settings: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = told(capsys, "--partition", name, "--clients", "12", *settings.get(name, []))
    assert (code, error) == (0, "")
    assert [int(line.split()[0]) for line in out.splitlines()[1:13]] == list(range(12))
    assert "digits: 12 clients, " in out
    assert "\x1b" not in out  # a pipe gets no colours


def test_many_clients_are_a_screenful(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = told(capsys)
    assert len(out.splitlines()) < 60
    assert " of 90 clients, evenly chosen from each group" in out
    assert re.search(r"^group 1 +1[0-5] ", out, re.M)


@pytest.mark.parametrize("rows", [20, 24, 60])
def test_a_terminal_gets_colours_and_fits(rows: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": "80", "LINES": str(rows), "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _, out, _ = told(capsys)
    plain = re.sub(r"\x1b\[[\d;]*m", "", out)
    assert plain != out
    clients = [line for line in plain.splitlines() if "█" in line]
    assert max(map(len, clients)) <= 80
    assert len(clients) <= max(rows - 12, 8)


def test_settings_of_the_partition_and_the_sizes_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["--set", "data.groups.0.alpha=0", "--set", "data.train_size=30"]
    _, out, _ = told(capsys, "--partition", "dirichlet", *sets)
    assert re.search(r"^all +10 +30 +30 +30 +26 +1 +0\.90 ", out, re.M)  # a class each: nine tenths of the samples are others'


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["digits", "--partition", "iid"], "give a recipe, or --partition"),
        (["--clients", "3"], "--clients goes with --partition NAME"),
        (["--partition", "iid", "--clients", "300"], r"--clients must be in 1\.\.269, a test image for each, got 300"),
        (["--partition", "idd"], r"unknown partition 'idd' \(did you mean iid\?\)"),
        (["--partition", "natural"], r"give column=FILE\.npz"),
        (["--out", "a.pdf"], r"--out must end in \.png or \.svg, got a\.pdf"),
    ],
)
def test_what_cannot_be_drawn(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = told(capsys, *args)
    assert code == 2
    assert re.search(message, error)


@pytest.mark.parametrize(("suffix", "begin"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_a_figure_is_written_and_always_the_same(
    suffix: str, begin: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra `report`")
    paths = [tmp_path / f"{k}{suffix}" for k in (1, 2)]
    for path in paths:
        assert told(capsys, "--partition", "quantity", "--out", str(path))[1] == f"wrote {path}\n"
    one, other = (path.read_bytes() for path in paths)
    assert one.startswith(begin)
    assert one == other


def test_numbers_by_hand() -> None:
    counts = np.array([[2.0, 2.0], [4.0, 0.0], [0.0, 4.0]])
    assert distances(counts, np.array([0.5, 0.5])).tolist() == [0.0, 0.5, 0.5]
    assert random_distances(np.array([1.0]), np.array([0.5, 0.5])).tolist() == [0.5]  # one sample is of one class
    assert binned(np.array([[0.1, 0.2, 0.3, 0.4]]), 2).round(9).tolist() == [[0.3, 0.7]]
    assert columns(np.array([0.0, 0.01, 1.0]), top=1.0, each=2) == "· ▁ █ "
    assert some_of_each(np.array([0] * 8 + [1]), 4).tolist() == [0, 4, 7, 8]


def test_the_summary_has_sizes_of_each_group() -> None:
    federation = digits(seed=0, groups=(Group(3, train_size=10), Group(2, train_size=30)), test_size=7)
    rows = summary(federation).rows
    assert [row[:6] for row in rows] == [
        ["group 0", "3", "10", "10", "10", "7"],
        ["group 1", "2", "30", "30", "30", "7"],
        ["all", "5", "10", "10", "30", "7"],
    ]
