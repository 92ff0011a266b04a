"""Verdicts on reproduced values: one rule, applied by code alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from fedgwc.reproduce.paper import Value

SEEDS = 3  # fewer are a partial reproduction; how many the paper had, it does not say
TOO_FEW = "too few seeds to tell"
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
    differing: tuple[str, ...] = ()  # settings that are not those that the paper states

    def shortfall(self, seeds: int = SEEDS) -> str:
        lacks = ["made data"] if self.made else list(self.differing)
        lacks += [f"{self.rounds:,} of {self.full_rounds:,} rounds"] if self.rounds < self.full_rounds else []
        lacks += [f"{self.rounds:,} rounds, not {self.full_rounds:,}"] if self.rounds > self.full_rounds else []
        lacks += [f"{self.seeds} of {seeds} seeds"] if self.seeds < seeds else []
        return ", ".join(lacks)


def verdict(paper: Value, ours: Sequence[float | None], effort: Effort, point: float) -> Verdict:
    """Judge our values, one per seed, against the paper's.

    In the paper's units, None where it is not defined; `point` is one point in these units.

    Near is within a point, or half of the last digit that the paper prints. What is farther away, but within the 95 % interval of
    the difference, is undecided, not reproduced. A count has no points, and no deviation excuses another one: two clusters in
    most runs are not the paper's one.
    """
    if lacks := effort.shortfall():
        return Verdict("partial", lacks)
    values = [v for v in ours if v is not None]
    if len(values) < len(ours):
        return Verdict("not reproduced", f"not defined in {len(ours) - len(values)} of {len(ours)} runs")
    difference = abs(statistics.fmean(values) - paper.mean)
    near = difference <= max(point, paper.resolution) + 1e-9
    if not point:
        return Verdict("reproduced" if near else "not reproduced")
    uncertain = half_width(values, paper.std or 0.0)
    if near and half_width(values) <= noisiest(paper, point):
        return Verdict("reproduced")
    return Verdict("partial", TOO_FEW) if near or difference <= uncertain else Verdict("not reproduced")


def half_width(values: Sequence[float], others: float = 0.0) -> float:
    """Return half the 95 % t interval of a mean over seeds.

    0 where there is none.

    `others` is the deviation that the paper prints, of as many seeds as we ask for: then it is that of the difference.
    """
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return 0.0  # nothing is near an infinite score
    error = math.hypot(statistics.stdev(values) / math.sqrt(len(values)), others / math.sqrt(SEEDS))
    return float(stats.t.ppf(0.975, len(values) - 1)) * error


def noisiest(paper: Value, point: float) -> float:
    """Return the widest half of our interval that says anything: beyond, any value of the paper's would be near."""
    return max(5 * point, 2 * paper.resolution, abs(paper.mean) / 10, 2 * (paper.std or 0.0))


def picture_verdict(effort: Effort) -> Verdict:
    """Judge a run that a figure shows without a number.

    One seed is enough to draw it.
    """
    lacks = effort.shortfall(seeds=1)
    return Verdict("partial", lacks) if lacks else Verdict("no number")
