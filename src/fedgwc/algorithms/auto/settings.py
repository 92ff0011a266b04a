"""Which of FedGWC's settings its rules for dividing use, and which values they may have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

MOST_VISITS = np.iinfo(np.int16).max  # the largest count of visits that a window of many clients can hold
MOST_DRAWS = 100_000  # of loss_samples, for every step of a cohort
# Settings that only some of the rules for dividing (`when`) look at; all look at the others.
USED_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("sides", "echo", "agreement", "directions", "contrast", "gain", "doubt", "drift"), ("windows",)),
    "second_look": ("windows",),
    "visits": ("windows", "visits"),
    **dict.fromkeys(("beta", "features", "scaled", "score", "assign", "groups_by_cohort", "strict"), ("visits", "mse")),
    **dict.fromkeys(("eps", "patience", "failure_resets_mse"), ("mse",)),
}
POSITIVE = "positive and finite", lambda x: 0 < x < math.inf
ALLOWED: dict[str, tuple[str, Callable[[float], bool]]] = {
    "beta": POSITIVE,
    "eps": POSITIVE,
    "alpha": ("in (0, 1]", lambda x: 0 < x <= 1),
    "contrast": ("at least -1", lambda x: x >= -1),
    "drift": ("positive", lambda x: x > 0),
    "agreement": ("at most 1", lambda x: x <= 1),
    "gain": ("a number", lambda x: not math.isnan(x)),
    "doubt": ("finite and at least 0", lambda x: 0 <= x < math.inf),
    "directions": ("at least 1", lambda x: x >= 1),
    "n_max": ("at least 2", lambda x: x >= 2),
    "min_size": ("at least 1", lambda x: x >= 1),
    "visits": (f"in 1..{MOST_VISITS - 1}", lambda x: 1 <= x < MOST_VISITS),
    "loss_samples": (f"in 0..{MOST_DRAWS}", lambda x: 0 <= x <= MOST_DRAWS),
}


def used(flat: dict[str, Any]) -> dict[str, Any]:
    """A run's settings by full name, without those that its rule for dividing ignores: they make no other method of it."""
    if "algorithm.when" not in flat:
        return flat
    idle = {f"algorithm.{name}" for name, rules in USED_BY.items() if flat["algorithm.when"] not in rules}
    return {key: value for key, value in flat.items() if key not in idle}
