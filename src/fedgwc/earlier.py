"""Runs of earlier versions: what they did where there was no setting for it yet."""

from __future__ import annotations

from typing import Any

# Where a run has the setting named first, or that value of it, it did so. The first that tells wins.
ADDED: dict[str, dict[str, Any]] = {
    "algorithm.when=windows": {"algorithm.margin": 0.0},
    "algorithm.aggregator.weights": {
        "algorithm.aggregator.combine": "mean",
        "algorithm.aggregator.trim": 0.2,
        "algorithm.aggregator.clip": 0.0,
    },
    "algorithm.when": {
        "algorithm.sides": True,
        "algorithm.contrast": 2.0,
        "algorithm.draws": 99,
        "algorithm.margin": 0.5,
        "algorithm.drift": 1.0,
        "algorithm.agreement": 0.9,
        "algorithm.directions": 3,
        "algorithm.pairs_up_to": 4096,
    },
}


def completed(flat: dict[str, Any]) -> dict[str, Any]:
    """A run's settings by their full names, with those that came after it."""
    for sign, added in ADDED.items():
        key, _, value = sign.partition("=")
        flat = {**added, **flat} if key in flat and value in ("", str(flat[key])) else flat
    return flat
