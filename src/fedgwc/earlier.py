"""Runs of earlier versions: what they did where there was no setting for it yet."""

from __future__ import annotations

from typing import Any

from fedgwc.settings import flatten, set_path

# Where a run has the setting named first, it did so.
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
# Of no account for FedGWC's other rules, which came before these or live beside them.
WINDOWS_ONLY = (
    *("sides", "echo", "agreement", "directions", "contrast", "gain", "doubt", "drift", "second_look"),
    *("draws", "margin"),
)


def completed(flat: dict[str, Any]) -> dict[str, Any]:
    """A run's settings by their full names, with those that came after it and without those that its rule does not ask."""
    for key, added in ADDED.items():
        flat = {**added, **flat} if key in flat else flat
    when = flat.get("algorithm.when", "windows")
    idle = {"windows": (), "visits": WINDOWS_ONLY}.get(when, (*WINDOWS_ONLY, "visits"))
    return {key: value for key, value in flat.items() if key.removeprefix("algorithm.") not in idle}


def as_it_was(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of a run's experiment, with the settings that came after it as it would have had them."""
    flat = flatten(tables)
    for key, value in completed(flat).items():
        if key not in flat:
            tables = set_path(tables, tuple(key.split(".")), value)
    return tables


def judged_otherwise(verdicts: list[dict[str, Any]]) -> bool:
    """Whether these are of the rule that compared cuts with chance."""
    return any("chance" in row for row in verdicts)
