"""Budgets: costs at which a run ends, and how they are read from its metrics.

Every method ends by the same rule: with the first round at whose end the budget is used up. It may overshoot by less than its
last round; tables at equal effort therefore take the last evaluation within the budget.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import torch

from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Algorithm, SamplesClients
from fedgwc.core.sampling import cohort_size
from fedgwc.core.settings import did_you_mean
from fedgwc.core.types import Ids
from fedgwc.core.work import LocalTraining

MEASURES: dict[str, tuple[str, ...]] = {  # each measure of effort: the keys of a metrics row that it sums
    "rounds": ("round",),
    "updates": ("client_updates",),
    "steps": ("gradient_steps",),
    "samples": ("samples",),
    "bytes": ("bytes_down", "bytes_up"),
    "evaluations": ("evaluations",),
    "seconds": ("seconds",),
}
SUFFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}
AMOUNT = re.compile(r"([0-9][0-9_.]*(?:e[0-9]+)?)([kKMG]?)")


@dataclass(frozen=True)
class Budget:
    """Costs at which a run ends, whichever is reached first."""

    updates: Annotated[int | None, "end once so many clients have trained"] = None
    steps: Annotated[int | None, "or made so many local steps"] = None
    samples: Annotated[int | None, "or trained on so many samples"] = None
    bytes: Annotated[int | None, "or once so many bytes went to clients and back"] = None
    evaluations: Annotated[int | None, "or once so many samples were scored because the algorithm asked"] = None
    seconds: Annotated[float | None, "or after so much time, evaluations included"] = None

    def __post_init__(self) -> None:
        for name, limit in self.limits.items():
            if not 0 < limit < math.inf:
                raise InputError(f"evaluate.budget.{name} must be positive and finite, got {limit}; leave it out for no limit")

    @property
    def limits(self) -> dict[str, float]:
        """Return the limits that are set."""
        return {f.name: limit for f in fields(self) if (limit := getattr(self, f.name)) is not None}

    def is_used_up(self, row: Mapping[str, float]) -> bool:
        """Tell whether a run with these costs has reached a limit."""
        return any(spent(row, name) >= limit for name, limit in self.limits.items())

    def smaller(self, other: Budget) -> list[str]:
        """List the measures of which this budget allows less than another."""
        theirs = other.limits
        return [name for name, limit in self.limits.items() if limit < theirs.get(name, math.inf)]

    def check_round(self, costs: Mapping[str, float]) -> None:
        """Refuse a budget that a single round with these costs exceeds."""
        for name, limit in self.limits.items():
            if costs.get(name, 0) > limit:
                raise InputError(
                    f"a round costs at least {costs[name]:,.0f} {name}, and the budget of {limit:,.0f} {name} ends within the "
                    f"first; allow more, or sample fewer clients (algorithm.rate)"
                )


@dataclass(frozen=True)
class Evaluate:
    """Times of evaluations and checkpoints, and the end of a run."""

    every: Annotated[int | None, "rounds between evaluations; unset: a hundredth of the run"] = None
    budget: Annotated[Budget, "costs at which a run ends, if that is before its last round"] = field(default_factory=Budget)
    checkpoint_seconds: Annotated[float, "time between checkpoints; one is always written at the end and on Ctrl-C"] = 30.0

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise InputError(f"evaluate.every must be at least 1 round, got {self.every}")
        if not 0 <= self.checkpoint_seconds < math.inf:
            raise InputError(f"evaluate.checkpoint_seconds must be >= 0 and finite, got {self.checkpoint_seconds}")


def spent(row: Mapping[str, float], measure: str) -> float:
    """Return what a run had spent at a row of its metrics.

    >>> spent({"bytes_down": 2, "bytes_up": 1}, "bytes")
    3
    """
    return sum(row[key] for key in MEASURES[measure])


def round_costs(algorithm: Algorithm[Any], sizes: Ids, local: LocalTraining | None, model_bytes: int) -> dict[str, float]:
    """Return the least that one round with a full cohort costs.

    Empty for an algorithm without a rate. Of clients [N] with so many samples, the smallest may be the ones that are drawn.
    """
    if not isinstance(algorithm, SamplesClients):
        return {}
    n = cohort_size(len(sizes), algorithm.rate)
    costs: dict[str, float] = {"updates": n, "bytes": 2 * n * model_bytes}
    if local is not None:
        known = torch.from_numpy(sizes)
        steps = local.step_counts(known)
        costs["steps"] = int(steps.sort().values[:n].sum())
        costs["samples"] = int((steps * local.batch_sizes(known)).sort().values[:n].sum())
    return costs


def budget_settings(budgets: Sequence[str]) -> list[str]:
    """Turn `MEASURE=AMOUNT` as users type them into settings.

    >>> budget_settings(["bytes=2.5G", "rounds=500"])
    ['evaluate.budget.bytes=2500000000', 'rounds=500']
    """
    return [_setting(text) for text in budgets]


def _setting(text: str) -> str:
    measure, _, written = (part.strip() for part in text.partition("="))
    if measure not in MEASURES:
        hint = did_you_mean(measure, MEASURES)
        raise InputError(f"unknown budget {measure!r}{hint}; a budget is one of {', '.join(MEASURES)}, such as updates=200000")
    found = AMOUNT.fullmatch(written)
    try:
        amount = float(found[1]) * SUFFIXES[found[2]] if found else math.nan
    except ValueError:
        amount = math.nan
    if not 0 < amount < math.inf:
        raise InputError(f"a budget is a number such as {measure}=200000, also with k, M or G after it; got {text!r}")
    whole = amount if measure == "seconds" else max(1, round(amount))
    return f"{measure}={whole}" if measure == "rounds" else f"evaluate.budget.{measure}={whole}"
