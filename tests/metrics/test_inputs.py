"""What the clustering metrics refuse, and in which words."""

from __future__ import annotations

import math

import pytest

from fedgwc.core.errors import InputError
from fedgwc.metrics import wasserstein_distances

from .tables import AGREEMENT_METRICS, CLUSTERING_METRICS

BAD_COUNTS = [
    ([1, 2], "shape"),
    ([[1, 2], [3]], "equally long"),
    ([["a"], ["b"]], "numbers"),
    ([[]], "shape"),
    ([[1, 2], [1, math.nan]], "client 1, class 1"),
    ([[1, math.inf], [1, 1]], "finite"),
    ([[1, -2], [1, 1]], "-2.0 for client 0, class 1"),
    ([[1, 1], [0, 0]], "client 1 has no samples"),
]
BAD_LABELS = [
    ([0], "1 for 2 clients"),
    ([[0, 1]], "shape"),
    ([0, math.nan], "NaN"),
    ([0, None], "None"),
    ([[0], [0, 1]], "unequal"),
]


@pytest.mark.parametrize(("counts", "message"), BAD_COUNTS)
def test_impossible_counts(counts: list[object], message: str) -> None:
    for score in CLUSTERING_METRICS.values():
        with pytest.raises(InputError, match=message):
            score(counts, [0, 1])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        wasserstein_distances(counts)  # type: ignore[arg-type]


@pytest.mark.parametrize(("labels", "message"), BAD_LABELS)
@pytest.mark.parametrize("name", [*CLUSTERING_METRICS, *AGREEMENT_METRICS])
def test_impossible_labels(name: str, labels: list[object], message: str) -> None:
    first = [[1, 2], [2, 1]] if name in CLUSTERING_METRICS else [0, 1]
    with pytest.raises(InputError, match=message):
        {**CLUSTERING_METRICS, **AGREEMENT_METRICS}[name](first, labels)  # type: ignore[arg-type]
