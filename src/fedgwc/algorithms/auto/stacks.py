"""Computing many clusters at once.

A Python call takes longer than its arithmetic on a cohort of three.

Clusters differ in size, but most of their cohorts are equally large. C clusters with cohorts of n clients are computed as one
array [C, n], or [C, n, n] over pairs. Only reads from and writes to their matrices go cluster by cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.core.types import Floats, Ids

Matrices = Sequence[NDArray[Any]]  # one per cluster, of any sizes


@dataclass(frozen=True)
class CohortReadings:
    """Readings of C equally large cohorts and of their clients."""

    whole: Floats  # [C, 4] `variances` and `first_losses`; NaN if unknown
    adrift: NDArray[np.bool_]  # [C] whether clients drift
    each: Floats  # [V, C, n] rewards and, if kept, sides and spreads
    levels: Floats | None = None  # [C, n] `Readings.levels`, if echoes are kept


def cohorts_alike(own: Ids, kinds: Sequence[Hashable], least: int) -> Iterator[tuple[list[int], Ids]]:
    """Group clusters of one kind by the size of their cohorts.

    (Indices of C clusters, the rows of their cohorts [C, n]), for every n >= least.

    own [N] is the index of each row's cluster.
    """
    cohorts: list[list[int]] = [[] for _ in kinds]
    for row, i in enumerate(own.tolist()):
        cohorts[i].append(row)
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for i, rows in enumerate(cohorts):
        if len(rows) >= least:
            groups[len(rows), kinds[i]].append(i)
    for places in groups.values():
        yield places, np.array([cohorts[i] for i in places])


def entries(at: Ids, sizes: Ids) -> Ids:
    """Return flat indices [C, n, n] of all pairs of members.

    Of the members `at` [C, n] in square matrices of `sizes` [C].
    """
    return at[:, :, None] * sizes[:, None, None] + at[:, None, :]


def move(views: Sequence[Matrices], places: Ids, values: Floats, alpha: Floats) -> tuple[NDArray[Any], NDArray[Any]]:
    """Move running means in place: at `places` of every view, towards `values` by `alpha`. Returns (old, new) means.

    places and alpha [C, ...], values and results [V, C, ...].
    """
    old = _taken(views, places)
    new = ((1 - alpha) * old + alpha * values).astype(old.dtype, copy=False)
    _put(views, places, new)
    return old, new


def count(visits: Matrices, places: Ids) -> NDArray[Any]:
    """Count one more visit in place; returns the new counts.

    A count stops at the largest number that its type can hold. From there on, a mean with step 1/n is an exponential average.
    """
    there = _taken([visits], places)
    there += there < np.iinfo(there.dtype).max
    _put([visits], places, there)
    return np.asarray(there[0])


def _taken(views: Sequence[Matrices], places: Ids) -> NDArray[Any]:
    there = [m.take(p) for matrices in views for m, p in zip(matrices, places, strict=True)]
    return np.concatenate(there).reshape(len(views), *places.shape)


def _put(views: Sequence[Matrices], places: Ids, values: NDArray[Any]) -> None:
    for matrices, new in zip(views, values, strict=True):
        for m, p, v in zip(matrices, places, new, strict=True):
            m.put(p, v)
