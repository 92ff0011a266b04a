"""Verdicts on reproduced values: one rule, applied by code alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedgwc.reproduce.paper import Value

SEEDS = 3  # fewer are a partial reproduction
Kind = Literal["reproduced", "not reproduced", "partial", "our own rule", "not run", "no number"]


@dataclass(frozen=True)
class Verdict:
    kind: Kind
    why: str = ""

    def __str__(self) -> str:
        return f"{self.kind} ({self.why})" if self.why else self.kind


@dataclass(frozen=True)
class Effort:
    """Our effort for a value, and the paper's."""

    seeds: int
    rounds: int  # of the shortest run
    full_rounds: int
    made: bool = False  # on made data
    differing: tuple[str, ...] = ()  # settings that are not the paper's

    def shortfall(self, seeds: int = SEEDS) -> str:
        lacks = ["made data"] if self.made else [f"other {', '.join(self.differing)}"] if self.differing else []
        lacks += [f"{self.rounds:,} of {self.full_rounds:,} rounds"] if self.rounds < self.full_rounds else []
        lacks += [f"{self.rounds:,} rounds, not {self.full_rounds:,}"] if self.rounds > self.full_rounds else []
        lacks += [f"{self.seeds} of {seeds} seeds"] if self.seeds < seeds else []
        return ", ".join(lacks)


def verdict(paper: Value, ours: Sequence[float | None], effort: Effort, point: float) -> Verdict:
    """Judge our values, one per seed, against the paper's.

    In the paper's units, None where it is not defined; `point` is one point in these units.

    A count has no points, and no deviation excuses another one: two clusters in most runs are not the paper's one.
    """
    if lacks := effort.shortfall():
        return Verdict("partial", lacks)
    values = [v for v in ours if v is not None]
    if len(values) < len(ours):
        return Verdict("not reproduced", f"not defined in {len(ours) - len(values)} of {len(ours)} runs")
    allowed = tolerance(paper, values, point) if point else paper.resolution
    if point and 2 * standard_error(values) > noisiest(paper, point):
        return Verdict("partial", "our seeds differ too much to tell")
    near = abs(statistics.fmean(values) - paper.mean) <= allowed + 1e-9
    return Verdict("reproduced" if near else "not reproduced")


def tolerance(paper: Value, ours: Sequence[float], point: float) -> float:
    """Return the allowed difference from the paper's value.

    One point, two standard errors of the difference, or half of the paper's last digit, whichever is largest.
    """
    theirs = (paper.std or 0.0) / math.sqrt(SEEDS)  # how many seeds the paper had, it does not say
    return max(point, paper.resolution, 2 * math.hypot(theirs, standard_error(ours)))


def noisiest(paper: Value, point: float) -> float:
    """Return the largest allowed value of two standard errors.

    Of our mean: beyond, any value of the paper's would be near.
    """
    return max(5 * point, 2 * paper.resolution, abs(paper.mean) / 10, 2 * (paper.std or 0.0))


def standard_error(values: Sequence[float]) -> float:
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return 0.0  # nothing is near an infinite score
    return statistics.stdev(values) / math.sqrt(len(values))


def picture_verdict(effort: Effort) -> Verdict:
    """Judge a run that a figure shows without a number.

    One seed is enough to draw it.
    """
    lacks = effort.shortfall(seeds=1)
    return Verdict("partial", lacks) if lacks else Verdict("no number")
