"""The verdict on a row: numbers against the paper's."""

from __future__ import annotations

import pytest

from fedgwc.reproduce.paper import printed
from fedgwc.reproduce.verdict import Effort, half_width, picture_verdict, verdict

FULL = Effort(seeds=3, rounds=100, full_rounds=100)


@pytest.mark.parametrize(
    ("printed_value", "ours", "point", "kind"),
    [
        ("50.0 ± 9.0", [50.5, 50.5, 50.5], 1.0, "reproduced"),  # half a point off
        ("50.0", [51.0, 51.0, 51.0], 1.0, "reproduced"),  # just one point
        ("50.0", [51.1, 51.1, 51.1], 1.0, "not reproduced"),
        ("50.0", [49.0, 52.0, 55.0], 1.0, "partial"),  # 2 off, half the interval is 4.3 * 3 / sqrt(3) = 7.5
        ("50.0", [53.5, 54.0, 54.5], 1.0, "not reproduced"),  # 4 off, half the interval is 1.2
        ("4", [4, 4, 5], 0.0, "reproduced"),  # a third of a cluster; the last digit allows a half
        ("4", [12, 12, 12], 0.0, "not reproduced"),
        ("1", [1, 2, 2], 0.0, "not reproduced"),  # most of them split what should stay whole
        ("0.1 ± 0.0", [0.14, 0.14, 0.14], 0.01, "reproduced"),  # 0.14 is printed as 0.1
        ("0.49 ± 0.0", [0.52, 0.52, 0.52], 0.01, "not reproduced"),  # 0.52 is not printed as 0.49
        ("0.49 ± 0.2", [0.52, 0.52, 0.52], 0.01, "partial"),  # but the paper's own runs differ by more
        ("47.5 ± 3.5", [44.9, 45.0, 45.1], 1.0, "partial"),  # 2.5 off, half the interval of theirs is 4.3 * 3.5 / sqrt(3) = 8.7
        ("53.4 ± 0.4", [40.0, 58.0, 62.2], 1.0, "partial"),  # whatever the paper says, runs so far apart are near to it
        ("2.4", [float("inf"), 2.4, 2.4], 0.01, "not reproduced"),
        ("2.4", [None, 2.4, 2.4], 0.01, "not reproduced"),
    ],
)
def test_a_verdict_follows_from_the_numbers(printed_value: str, ours: list[float | None], point: float, kind: str) -> None:
    assert verdict(printed(printed_value), ours, FULL, point).kind == kind


@pytest.mark.parametrize(
    ("effort", "text"),
    [
        (Effort(2, 100, 100), "partial (2 of 3 seeds)"),
        (Effort(3, 2000, 20_000), "partial (2,000 of 20,000 rounds)"),
        (Effort(3, 40_000, 20_000), "partial (40,000 rounds, not 20,000)"),
        (Effort(3, 100, 100, differing=("local.lr 0.5 instead of 0.1",)), "partial (local.lr 0.5 instead of 0.1)"),
        (Effort(1, 3, 20_000, made=True), "partial (made data, 3 of 20,000 rounds, 1 of 3 seeds)"),
    ],
)
def test_less_effort_is_partial_however_near_the_value(effort: Effort, text: str) -> None:
    assert str(verdict(printed("50.0"), [50.0] * effort.seeds, effort, 1.0)) == text


def test_half_an_interval_by_hand() -> None:
    """Of three values with deviation 3 ** 0.5, and standard error 1, it is the t quantile of two degrees of freedom, 4.303."""
    ours = [50 - 3**0.5, 50, 50 + 3**0.5]
    assert half_width(ours) == pytest.approx(4.303, abs=1e-3)
    assert half_width(ours, others=3.0) == pytest.approx(4.303 * 2, abs=2e-3)  # theirs is 3 / sqrt(3): together sqrt(1 + 3)
    assert half_width([50.0]) == half_width([50.0, float("inf")]) == 0


def test_a_picture_needs_one_full_run() -> None:
    assert str(picture_verdict(Effort(1, 100, 100))) == "no number"
    assert str(picture_verdict(Effort(1, 10, 100))) == "partial (10 of 100 rounds)"
