"""Tables with measurements: each number of them is in a file under results/."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from benchmarks.torture.__main__ import PARTS, PRINTED
from benchmarks.torture.page import with_tables

from benchmarks import baselines, pays
from fedgwc.core.assignments import flatten
from fedgwc.reproduce.paper import all_rows

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TABLE = re.compile(r"<!-- from (results/[^\s:]+)(?:: (\w+))? -->\n(.*?)<!-- end -->", re.S)
COPIED = re.compile(r"<!-- copied from (results/\S+) -->\n(.*?)<!-- end -->", re.S)
NUMBER = re.compile(r"(?<![\w.,])[-−]?\d[\d,]*(?:\.\d+)?")
MARKED = [
    (path.relative_to(ROOT).as_posix(), *found) for path in PAGES for found in TABLE.findall(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("page", "source", "name", "table"), MARKED)
def test_each_number_of_a_table_is_in_its_file(page: str, source: str, name: str, table: str) -> None:
    path = ROOT / source
    known = set(of_runs(path) if path.is_dir() else numbers(json.loads(path.read_text(encoding="utf-8"))))
    shown = [n.replace(",", "") for n in NUMBER.findall(table.replace("−", "-"))]
    assert len(shown) > 10
    assert not [n for n in shown if not any(math.isclose(float(n), k, abs_tol=0.5001 * 10.0 ** -decimals(n)) for k in known)]


def test_copied_tables_stand_in_their_files() -> None:
    copies = [found for path in PAGES for found in COPIED.findall(path.read_text(encoding="utf-8"))]
    assert len(copies) >= 3
    for source, table in copies:
        path = ROOT / source
        assert table in path.read_text(encoding="utf-8")
        about = json.loads((path.parent / "provenance.json").read_text(encoding="utf-8"))
        assert all(about[key] for key in ("command", "commit", "seeds", "hardware", "versions", "date", "settings"))


def test_tables_of_what_pays_follow_from_their_rows() -> None:
    text = pays.PAGE.read_text(encoding="utf-8")
    assert pays.with_tables(text) == text
    for path in pays.RESULTS.glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        assert all(found["about"][key] for key in ("command", "commit", "date", "machine", "selection"))


def test_tables_of_measurements_name_their_file() -> None:
    """A table in which a deviation stands is one of measurements."""
    for path in PAGES:
        text = COPIED.sub("", path.read_text(encoding="utf-8"))
        text = re.sub(r"<!-- table \w+ -->.*?<!-- end -->", "", TABLE.sub("", text), flags=re.S)
        rows = [line for line in text.splitlines() if line.startswith("|") and " ± " in line]
        assert not rows or path.name == "results.md", rows  # of results.md every byte is tested


def test_tables_of_baselines_follow_from_their_rows() -> None:
    found = json.loads(baselines.RESULTS.read_text(encoding="utf-8"))
    for method, table in baselines.tables(found).items():
        assert found["tables"][method] == {"head": table.head, "rows": table.rows}
        text = baselines.PAGES[method].read_text(encoding="utf-8")
        assert baselines.with_table(text, method, table) == text
    assert not set(found["seeds"]) & set(baselines.DESIGN)
    assert all(found.get(key) for key in ("command", "commit", "hardware", "versions", "date", "settings"))


def test_tables_of_reliability_follow_from_their_files() -> None:
    folder, text = ROOT / "results" / "torture", (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    kept = [name for name in PARTS if name not in PRINTED]
    for name in kept:
        text_again = with_tables(text, PARTS[name][2](json.loads((folder / f"{name}.json").read_text())))
        assert text_again == text, name
    assert set(json.loads((folder / "provenance.json").read_text())) == set(kept)
    assert {p.stem for p in folder.iterdir()} == {*kept, "provenance"}


def decimals(number: str) -> int:
    return len(number.partition(".")[2])


def numbers(value: Any) -> Iterator[float]:
    """Every number of a JSON value, also those in its texts."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for each in value:
            yield from numbers(each)
    elif isinstance(value, str):
        yield from (float(n.replace(",", "")) for n in NUMBER.findall(value))
    elif isinstance(value, int | float) and math.isfinite(value):
        yield float(value)


def of_runs(folder: Path) -> Iterator[float]:
    """The last metrics of each run and their means over seeds, also in per cent; the settings, and what the paper prints."""
    runs = sorted(folder.glob("*/metrics.jsonl"))
    for _, seeds in groupby(runs, key=lambda path: re.sub(r"-seed\d+$", "", path.parent.name)):
        paths = list(seeds)
        last = [json.loads(path.read_text(encoding="utf-8").splitlines()[-1]) for path in paths]
        for key in last[0]:
            mean = statistics.fmean(row[key] for row in last)
            yield from (mean, 100 * mean)
        yield from numbers(list(flatten(json.loads((paths[0].parent / "config.json").read_text())["experiment"]).values()))
    for row in all_rows():
        yield from numbers([value.text for value in row.values.values()])
