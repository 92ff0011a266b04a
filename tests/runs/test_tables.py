"""Tables as a terminal and a pipe get them."""

from __future__ import annotations

import re
import sys

import pytest

from fedgwc.runs.tables import COLUMNS, COSTS, Table, comparison_table, is_numeric, parts, show

WIDE = Table(
    ["algorithm", "accuracy %", "WAS", COSTS, "seconds"],
    [["fedavg", "89.3", "–", "1,000", "3.1"], ["auto", "94.4 ± 0.3", "-0.10", "1,200", "12.0"]],
)


@pytest.mark.parametrize("cell", ["3", "1,234.5", "-0.1", "−0.1", "94.4 ± 0.3", "94.4 ± 0.3 (2/3)", "39.5 (−13.9)", "1e-05", "–"])
def test_a_number_is_one_with_its_deviation_and_unit(cell: str) -> None:
    assert is_numeric([cell, "170 MB", "inf", ""])


@pytest.mark.parametrize("cell", ["ready", "0 to 1, higher is better", "0.1, 0.5", "85 15", "/", "3 clients"])
def test_what_only_begins_like_a_number_is_text(cell: str) -> None:
    assert not is_numeric([cell, "3"])


def test_text_is_left_aligned_and_numbers_are_right_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    show(Table(["name", "state", "n", "what"], [["a", "ok", "1", "short"], ["b", "missing", "100", "much longer"]]))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["name  state      n  what", "a     ok         1  short", "b     missing  100  much longer"]


def test_a_pipe_gets_all_columns_side_by_side(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    long = "word " * 30 + "end"
    show(Table([*WIDE.head, "what"], [[*row, long] for row in WIDE.rows]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.rstrip().endswith("end") for line in lines[1:])


@pytest.mark.parametrize("width", [54, 40, 30, 26])
def test_a_narrow_terminal_gets_costs_below(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    found = parts(WIDE, width)
    assert all(part[0] == 0 for part in found)
    assert [i for part in found for i in part[1:]] == [1, 2, 3, 4]
    assert width >= 54 or any(part[1] == 3 for part in found)  # costs begin a table of their own
    show(WIDE)
    out = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert max(map(len, out.splitlines())) <= width
    assert out.count("auto") == len(found)
    for cell in (*WIDE.head, *WIDE.rows[1]):
        assert cell in out


def test_words_wrap_before_a_table_is_taken_apart() -> None:
    table = Table(["name", "what"], [["a", "word " * 30]])
    assert parts(table, 40) == [[0, 1]]


def test_costs_are_a_column() -> None:
    assert COSTS in [c.title for c in COLUMNS]


def test_nothing_is_less_than_zero_by_rounding() -> None:
    assert comparison_table([("a", [{"ari": -0.001}])]).rows == [["a", "0.00"]]


def test_large_numbers_have_no_tenths() -> None:
    rows = [("a", [{"bytes_up": 999.94e6}]), ("b", [{"bytes_up": 652_265.6e6}])]
    assert [row[1] for row in comparison_table(rows).rows] == ["999.9", "652,266"]
