"""The section on why clusters were divided, or were not: what `auto` records of every attempt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedgwc.core.errors import InputError
from fedgwc.report import build
from fedgwc.report.content import Section
from fedgwc.report.load import load
from tests.report.conftest import AT_ALL_COSTS, Finished

WINDOWS = {"contrast": 2.0, "agreement": 0.94, "gain": 4.0, "doubt": 11.0, "min_size": 5}  # the rule as it is


def why(folder: Path) -> Section:
    [section] = [s for s in build([folder]).sections if s.id == "why"]
    return section


def test_it_says_why_nothing_was_divided(finished: Finished) -> None:
    """Everybody is there in every round, so windows last 10 of the 35."""
    section = why(finished("auto", rounds=35, algorithm=WINDOWS | {"contrast": 1e6, "drift": 1e6}))
    assert section.lead.startswith("3 windows of rounds came to an end. Left whole: ")
    assert "no cut before (1)" in section.lead
    assert "At the last, in round 30, " in section.lead
    assert "at least 2" not in section.lead
    [table] = section.tables
    assert table.sortable
    assert [row[0].text for row in table.rows] == ["10", "20", "30"]
    assert all(row[3].text.startswith("whole: ") for row in table.rows)
    assert [p.name for p in section.pictures] == ["verdicts"]
    assert "cluster 0, 3 windows, whole after the last" in section.pictures[0].alt
    assert section.lead.endswith("Clusters of fewer than 10 clients are not tried.")


def test_it_says_why_a_cluster_was_divided(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = finished("auto", rounds=65, algorithm=AT_ALL_COSTS | {"min_size": 5})
    run = load(folder)
    divided = [j for j in run.verdicts if j.verdict.divides]
    assert [(j.round, j.verdict.cluster) for j in divided] == [(n.ended, n.id) for n in run.splits]
    assert "Divided: there are groups (" in why(folder).lead
    monkeypatch.setattr("fedgwc.report.verdicts.MOST_ROWS", len(divided))
    few = why(folder)
    assert [row[0].value for row in few.tables[0].rows] == [j.round for j in divided]
    assert f"verdicts.jsonl has {len(run.verdicts) - len(divided)} more" in few.note


def test_it_says_who_moved_to_the_other_side_of_a_division(finished: Finished, tmp_path: Path) -> None:
    folder = shutil.copytree(finished("auto", rounds=65, algorithm=WINDOWS), tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "verdicts.jsonl").read_text().splitlines()]
    windows = why(folder)
    moved = rows[0] | {"round": 63, "cluster": 7, "reason": "moved", "sizes": [9, 3], "to": 8, "agreement": None, "rounds": 0}
    (folder / "verdicts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, moved]))
    section = why(folder)
    assert "Moved later to the other side of a division: 3 clients." in section.lead
    assert section.lead.startswith(f"{len(rows)} windows of rounds came to an end.")
    assert [cell.text for cell in section.tables[0].rows[-1][:4]] == [
        "63",
        "7",
        "9 + 3",
        "moved: served better on the other side",
    ]
    assert [p.alt for p in section.pictures] == [p.alt for p in windows.pictures]


@pytest.mark.parametrize(
    ("reason", "cut", "lead", "cell"),
    [
        ("confirmed", [12], "Confirmed later: 1 division.", "confirmed: each side has the model that serves it"),
        ("rejoined", [9, 3], "Undone later: 1 division.", "undone: no side was served better by its own model"),
    ],
)
def test_it_says_what_came_of_a_trial(
    reason: str, cut: list[int], lead: str, cell: str, finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(finished("auto", rounds=65, algorithm=WINDOWS), tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "verdicts.jsonl").read_text().splitlines()]
    windows = why(folder)
    told = {"round": 50, "cluster": 7, "clients": 12, "reason": reason, "sizes": cut, "clear": 2.5, "why": "so"}
    (folder / "verdicts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [told, *rows]))
    section = why(folder)
    assert lead in section.lead
    assert section.lead.startswith(f"{len(rows)} windows of rounds came to an end.")
    row = [c.text for c in section.tables[0].rows[0]]
    assert row == ["50", "7", " + ".join(map(str, cut)), cell, *["–"] * 8, "2.5"]
    assert len(row) == len(section.tables[0].head)
    assert [p.alt for p in section.pictures] == [p.alt for p in windows.pictures]
    monkeypatch.setattr("fedgwc.report.verdicts.MOST_ROWS", 1 + sum(row["divides"] for row in rows))
    assert cell in [row[3].text for row in why(folder).tables[0].rows]  # whatever else is left out


def test_a_run_without_verdicts_has_no_such_section(finished: Finished, tmp_path: Path) -> None:
    run = shutil.copytree(finished("auto", rounds=25, algorithm=WINDOWS), tmp_path / "r")
    assert "why" in {s.id for s in build([run]).sections}
    (run / "verdicts.jsonl").unlink()  # as an older version left it
    assert "why" not in {s.id for s in build([run]).sections}


@pytest.mark.parametrize(
    "change",
    [{"reason": "mood"}, {"clients": "many"}, {"score": float("nan")}, {"drift": float("inf")}, {"why": None, "rounds": 10**400}],
    ids=str,
)
def test_a_damaged_verdict_is_named(change: dict[str, Any], finished: Finished, tmp_path: Path) -> None:
    run = shutil.copytree(finished("auto", rounds=25, algorithm=WINDOWS), tmp_path / "r")
    rows = [json.loads(line) for line in (run / "verdicts.jsonl").read_text().splitlines()]
    (run / "verdicts.jsonl").write_text(json.dumps(rows[0] | change) + "\n")
    with pytest.raises(InputError, match=r"verdicts\.jsonl cannot be read"):
        build([run])
