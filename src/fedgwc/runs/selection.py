"""Which evaluation of a run is reported: the last, the best on validation, or the mean of the last ones.

Whatever is selected is selected on validation samples, never on test samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from fedgwc.core.errors import InputError

LAST_K = 10  # evaluations in the mean of the last ones
Row = Mapping[str, Any]


def best(rows: Sequence[Row], metric: str = "accuracy") -> Row:
    """Return the evaluation that is best on validation samples.

    Of equal ones that with the lower validation loss, then the earlier.

    >>> rows = [{"round": r, "validation_accuracy": a, "accuracy": 0.5} for r, a in ((1, 0.2), (2, 0.9), (3, 0.8))]
    >>> best(rows)["round"]
    2
    """
    return max(rows, key=lambda row: validation_rank(row, metric))


def validation_rank(row: Row, metric: str = "accuracy") -> tuple[float, float]:
    """Return an evaluation's rank on validation samples; larger is better."""
    name = f"validation_{metric}"
    if name not in row:
        known = sorted(key.removeprefix("validation_") for key in row if key.startswith("validation_"))
        if not known:
            raise InputError("the run has no validation samples to select on; hold some out: data.validation=0.2")
        raise InputError(f"no metric {metric!r} is there to select by; take one of {', '.join(known)}")
    value, loss = float(row[name]), float(row.get("validation_loss", math.inf))
    sign = -1 if metric == "loss" else 1
    return (-math.inf if math.isnan(value) else sign * value), (-math.inf if math.isnan(loss) else -loss)


def mean_of_last(rows: Sequence[Row], k: int = LAST_K) -> dict[str, Any]:
    """Average the last k evaluations, where all have a number.

    >>> mean_of_last([{"round": 1, "accuracy": 0.2}, {"round": 2, "accuracy": 0.4}, {"round": 3, "accuracy": 0.6}], 2)["accuracy"]
    0.5
    """
    some = rows[-k:]
    numbers = [key for key in rows[-1] if all(isinstance(row.get(key), int | float) for row in some)]
    return {**rows[-1], **{key: fmean(row[key] for row in some) for key in numbers if key != "round"}}


WHEN: dict[str, Callable[[Sequence[Row], str], Row]] = {
    "last": lambda rows, metric: rows[-1],
    "best": best,
    "mean": lambda rows, metric: mean_of_last(rows),
}
