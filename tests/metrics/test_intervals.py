"""Intervals of weights: what is refused, and what one reward says."""

from __future__ import annotations

import numpy as np
import pytest

from fedgwc.core.errors import InputError
from fedgwc.metrics.intervals import weight_interval


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0}, r"alpha must be in \(0, 1\], got 0"),
        ({"alpha": 5}, "alpha must be"),
        ({"alpha": "x"}, "alpha must be numbers"),
        ({"visits": [-5, 3]}, r"visits must be counts, finite and >= 0, got -5.0\.\.3.0"),
        ({"visits": [np.nan, 3]}, "visits must be counts"),
        ({"visits": [3, 3, 3]}, "of one length"),
        ({"gamma": [0.5, np.nan]}, "gamma must hold means"),
        ({"gamma2": [0.5, 9.0]}, "gamma2 must hold means"),
        ({"z": np.nan}, "z must be positive and finite"),
    ],
    ids=str,
)
def test_impossible_intervals(change: dict[str, object], message: str) -> None:
    good = {"gamma": [0.5, 0.5], "gamma2": [0.3, 0.3], "visits": [3, 3]}
    with pytest.raises(InputError, match=message):
        weight_interval(**{**good, **change})  # type: ignore[arg-type]


def test_a_single_reward_has_no_interval() -> None:
    low, high = weight_interval([0.5], [0.25], [9], alpha=1)
    assert (low.tolist(), high.tolist()) == ([0.0], [1.0])
