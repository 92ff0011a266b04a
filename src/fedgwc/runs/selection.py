"""Selection of a run's evaluation, which reads validation only."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fedgwc.core.errors import InputError

Row = Mapping[str, Any]  # of metrics.jsonl


def best(rows: Sequence[Row], metric: str = "accuracy") -> Row:
    """Return the evaluation that is best on validation."""
    key = f"validation_{metric}"
    seen = [row for row in rows if key in row]
    if not seen:
        raise InputError(f"no evaluation has {key}; set data.validation=0.2")
    return min(seen, key=lambda row: (-row[key], row.get("validation_loss", 0.0), row["round"]))


def mean_of_last(rows: Sequence[Row], k: int = 10) -> dict[str, Any]:
    """Average the numbers of the last k evaluations."""
    last = rows[-k:]
    keys = [key for key, value in last[-1].items() if isinstance(value, int | float) and all(key in row for row in last)]
    return {**last[-1], **{key: statistics.fmean(row[key] for row in last) for key in keys if key != "round"}}
