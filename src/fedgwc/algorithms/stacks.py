"""What is done for one cluster, done for many at once: a Python call takes longer than its arithmetic on a cohort of three.

Clusters are of all sizes, but their cohorts are mostly equally large. C clusters with cohorts of n are computed with as one array
[C, n], or [C, n, n] over pairs. Only reading their matrices and writing to them goes cluster by cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.core import Floats, Ids

Matrices = Sequence[NDArray[Any]]  # one of each cluster, of any sizes


@dataclass(frozen=True)
class Told:
    """What C equally large cohorts say about themselves and about their clients."""

    whole: Floats  # [C, 4] `variances` and `first_losses`; NaN: unknown
    adrift: NDArray[np.bool_]  # [C] whether clients drift
    each: Floats  # [V, C, n] rewards, and perhaps sides and spreads
    levels: Floats | None = None  # [C, n] `Readings.levels`, where echoes are listened to


def cohorts_alike(own: Ids, kinds: Sequence[Hashable], least: int) -> Iterator[tuple[list[int], Ids]]:
    """Places of C clusters of one kind whose cohorts are equally large, and the rows of these [C, n], n >= least.

    own [N] says to which cluster each row belongs.
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
    """Where all pairs of members `at` [C, n] stand in matrices of `sizes` [C], read row by row: [C, n, n]."""
    return at[:, :, None] * sizes[:, None, None] + at[:, None, :]


def move(views: Sequence[Matrices], places: Ids, values: Floats, alpha: Floats) -> tuple[NDArray[Any], NDArray[Any]]:
    """Running means, in place: those at `places` of every view move towards `values` by `alpha`; what they were and are.

    places and alpha [C, ...], values and results [V, C, ...].
    """
    old = _taken(views, places)
    new = ((1 - alpha) * old + alpha * values).astype(old.dtype, copy=False)
    _put(views, places, new)
    return old, new


def count(visits: Matrices, places: Ids) -> NDArray[Any]:
    """One more visit, in place; returns how many that makes.

    The largest number that the type can hold stays: from there on a mean of 1/n steps forgets.
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
