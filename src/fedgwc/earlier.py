"""Runs of earlier versions: what they did where there was no setting for it yet."""

from __future__ import annotations

from typing import Any

# Where a run has the setting named first, it did so.
ADDED: dict[str, dict[str, Any]] = {
    "algorithm.draws": {"algorithm.margin": 0.0},
    "algorithm.aggregator.weights": {
        "algorithm.aggregator.combine": "mean",
        "algorithm.aggregator.trim": 0.2,
        "algorithm.aggregator.clip": 0.0,
    },
    "algorithm.when": {"algorithm.pairs_up_to": 4096},
}
# Of no account for FedGWC's other rules, which came before these or live beside them.
WINDOWS_ONLY = ("sides", "agreement", "directions", "contrast", "gain", "drift", "draws", "margin")


def completed(flat: dict[str, Any]) -> dict[str, Any]:
    """A run's settings by their full names, with those that came after it and without those that its rule does not ask."""
    for key, added in ADDED.items():
        flat = {**added, **flat} if key in flat else flat
    if flat.get("algorithm.when", "windows") == "windows":
        return flat
    return {key: value for key, value in flat.items() if key.removeprefix("algorithm.") not in WINDOWS_ONLY}


def judged_otherwise(verdicts: list[dict[str, Any]]) -> bool:
    """Whether these are of the rule that compared cuts with chance."""
    return any("chance" in row for row in verdicts)
