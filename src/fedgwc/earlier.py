"""Runs of earlier versions: the values of settings that were added later and describe what those runs did; what files mean."""

from __future__ import annotations

from typing import Any

from fedgwc.algorithms.fedgwc_settings import USED_BY
from fedgwc.core import Floats
from fedgwc.settings import flatten, set_path

# A run that has the setting on the left, but not those on the right, behaved as these values say.
ADDED: dict[str, dict[str, Any]] = {
    "algorithm.draws": {"algorithm.margin": 0.0},
    "algorithm.aggregator.weights": {
        "algorithm.aggregator.combine": "mean",
        "algorithm.aggregator.trim": 0.2,
        "algorithm.aggregator.clip": 0.0,
    },
    "algorithm.when": {"algorithm.pairs_up_to": 4096},
    "algorithm.sides": {"algorithm.echo": False, "algorithm.second_look": False, "algorithm.doubt": 0.0},
}
GONE = {"draws": ("windows",), "margin": ("windows",)}  # settings that there were, and the rules that looked at them


def completed(flat: dict[str, Any]) -> dict[str, Any]:
    """A run's settings by full name, with those that were added after it and without those that its rule ignores."""
    for key, added in ADDED.items():
        flat = {**added, **flat} if key in flat else flat
    when = flat.get("algorithm.when", "windows")
    idle = {f"algorithm.{name}" for name, rules in {**USED_BY, **GONE}.items() if when not in rules}
    return {key: value for key, value in flat.items() if key not in idle}


def as_it_was(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of a run's experiment, with values for the settings that were added after it."""
    flat = flatten(tables)
    for key, value in completed(flat).items():
        if key not in flat:
            tables = set_path(tables, tuple(key.split(".")), value)
    return tables


def histogram(counts: Floats) -> Floats | None:
    """Class counts [N, C], or None: over Flower those that nodes did not tell were one column, all of a client's samples."""
    return None if counts.shape[1] < 2 else counts
