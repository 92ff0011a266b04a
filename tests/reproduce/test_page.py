"""The page of results, and the command that makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedgwc.cli.reproduce import reproduce_command
from fedgwc.core.errors import InputError
from fedgwc.reproduce.page import page
from fedgwc.reproduce.paper import paper

ROOT = Path(__file__).parents[2]


def test_the_page_regenerates_byte_for_byte() -> None:
    """If this fails, results, presets or recipes have changed: run `fedgwc results page` and read what it says now."""
    docs = ROOT / "docs"
    assert page(ROOT / "results", docs / "figures").encode() == (docs / "results.md").read_bytes()


def test_figures_are_small() -> None:
    figures = list((ROOT / "docs" / "figures").glob("*"))
    assert figures
    for path in figures:
        assert path.stat().st_size < 100_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"names": ["table-1"]},
            r"unknown table or figure 'table-1' .did you mean table-k.*; choose from fig-.*table-large-scale",
        ),
        ({"presets": ["fedgcw"]}, "unknown preset of FedGWC 'fedgcw'.*did you mean fedgwc"),
        ({"sets": ["algorithm.beta=3"]}, "that is what the tables themselves vary"),
        ({"scale": "tiny"}, "unknown scale 'tiny'"),
    ],
)
def test_mistakes(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"names": ["table-k"], "scale": "smoke", "n_seeds": 1, "out": tmp_path / "o", **change}
    with pytest.raises(InputError, match=message):
        reproduce_command(**arguments)
    assert not (tmp_path / "o").exists()


def test_without_a_name_all_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reproduce_command([], "full", None, tmp_path)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(paper())
