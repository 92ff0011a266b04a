"""Tables of the results page that put seeds together."""

from __future__ import annotations

from fedgwc.reproduce.page import between, folded, without_common
from fedgwc.runs.tables import Table

RUNS = Table(
    ["folder", "round", "commit"],
    [["a/x-seed0", "7,500", "1f"], ["a/x-seed2", "800", "1f"], ["a/x-seed3", "9", "2e"], ["a/y", "5", "1f"]],
)


def test_rows_that_differ_in_the_seed_are_one() -> None:
    assert folded(RUNS, "folder", ranges=("round",)).rows == [
        ["a/x-seed0,2", "800 to 7,500", "1f"],
        ["a/x-seed3", "9", "2e"],
        ["a/y", "5", "1f"],
    ]
    assert folded(RUNS, "folder").rows == [["a/x-seed0,2,3", "9 to 7,500", "1f, 2e"], ["a/y", "5", "1f"]]


def test_a_range_is_by_size_and_one_value_stays() -> None:
    assert between(["10", "9", "10"]) == "9 to 10"
    assert between(["unknown", "9"]) == "unknown, 9"
    assert between(["inf"]) == "inf"


def test_what_all_rows_share_is_said_once() -> None:
    table, said = without_common(Table(["a", "b"], [["1", "x"], ["2", "x"]]))
    assert (table.head, table.rows, said) == (["a"], [["1"], ["2"]], "All have b: x.")
    assert without_common(Table(["a"], [["1"]])) == (Table(["a"], [["1"]]), "")
