"""One line on why a federation was divided, or was not."""

from __future__ import annotations

from fedgwc.cli.why import why


def test_why_in_one_line() -> None:
    rows = [{"round": 293, "divides": False, "why": "a"}, {"round": 1588, "divides": True, "why": "b", "sizes": [85, 15]}]
    assert why(rows[:1]) == "no division by round 293: a"
    assert why(rows) == "divided at round 1,588 into 85 + 15 clients: b"
    assert why(rows + rows) == "divided at round 1,588 into 85 + 15 clients: b; 1 more division later"


def test_a_division_that_was_undone_is_none() -> None:
    division = {"round": 40, "cluster": 0, "divides": True, "reason": "groups", "why": "a", "sizes": [25, 25]}
    undone = {"round": 80, "cluster": 0, "divides": False, "reason": "rejoined", "why": "b"}
    again, within = division | {"round": 160, "sizes": [30, 20]}, division | {"round": 200, "cluster": 3, "sizes": [15, 15]}
    assert why([division, undone]) == "no division by round 80: b"
    assert why([division, undone, again]) == "divided at round 160 into 30 + 20 clients: a"
    assert why([division, within, undone | {"cluster": 3}]) == "divided at round 40 into 25 + 25 clients: a"
