"""How differently clients are perceived: squared distances between their perception vectors, a block of clients at a time.

The unbiased perception vector (UPV) of client k towards j is row k of a matrix V [K, K] over pairs without the entries k
and j. V has the type of P: for many clients it is float32, and memory has room beside it for only a few blocks of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgwc.algorithms.fedgwc.interactions import blocks, square, upv_distances
from fedgwc.core.arguments import counts, numbers
from fedgwc.core.errors import InputError


def perception_distances(V: ArrayLike, visits: ArrayLike) -> NDArray[Any]:
    """Squared distances between UPVs, divided by their number of entries. V and visits [K, K] -> [K, K], diagonal 0.

    For a pair that never met, the client's mean over all its rounds, which is on the diagonal, stands in. A client that was in
    no round is placed in the middle of the others.

    >>> perception_distances([[0.2, 0.2, 0.2], [0.2, 0.2, 0.2], [0.8, 0.8, 0.8]], np.ones((3, 3))).round(2).tolist()
    [[0.0, 0.0, 0.36], [0.0, 0.0, 0.36], [0.36, 0.36, 0.0]]
    """
    view, times = square(V).copy(), numbers(visits, "visits")
    if times.shape != view.shape:
        raise InputError(f"visits must be of the shape {view.shape}, one count per pair of clients, got {times.shape}")
    counts(times, "visits")
    return add_distances(np.zeros_like(view), [view], times)


def add_distances(distances: NDArray[Any], views: Sequence[NDArray[Any]], visits: NDArray[Any]) -> NDArray[Any]:
    """Add the `perception_distances` of every view [K, K] to `distances`, in place.

    Views are written to as well, where a pair never met: for many clients there is no room for copies.
    """
    for view in views:
        fill_in(view, visits)
    entries = max(len(distances) - 2, 1)
    for parts in zip(*map(upv_distances, views), strict=True):
        k, j, new = parts[0]
        new /= entries
        for _, _, more in parts[1:]:
            more /= entries
            new += more
        distances[k, j] += new
        if k != j:
            distances[j, k] += new.T
    return distances


def fill_in(view: NDArray[Any], visits: NDArray[Any]) -> None:
    """Fill in place: a pair that never met gets its first client's mean, and a client that was in no round the others' means."""
    for k in blocks(len(view)):
        np.copyto(view[k], np.diag(view)[k, None], where=visits[k] <= 0)
    away = np.diag(visits) <= 0
    if away.any() and not away.all():
        view[away] = (view.sum(0, dtype=np.float64) - view[away].sum(0, dtype=np.float64)) / (~away).sum()
