"""Squared distances between perception vectors, a block of clients at a time.

The unbiased perception vector (UPV) of client k towards j is row k of a matrix V [K, K] over pairs without the entries k
and j. V has the type of P: for many clients it is float32, and memory has room beside it for only a few blocks of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgwc.core.arguments import check_counts, numbers
from fedgwc.core.errors import InputError

LARGE = 1024  # for more clients, matrices are float32 instead of float64, and are processed in blocks of this many rows


def upv_distances(V: NDArray[Any]) -> Iterator[tuple[slice, slice, NDArray[Any]]]:
    """Yield squared distances between the UPVs of all pairs.

    As (rows, columns, block) of the upper half; diagonal 0.

    One matrix product per block: the squared distance of whole rows minus the two entries that a pair leaves out.
    """
    diagonal = np.diag(V)
    centre = V.mean(0, dtype=np.float64).astype(V.dtype)  # subtracted, so that no digits cancel
    cut = blocks(len(V))
    squares = np.concatenate([((V[k] - centre) ** 2).sum(1) for k in cut])
    for i, k in enumerate(cut):
        rows = V[k] - centre
        for j in cut[i:]:
            d = squares[k, None] + squares[j]
            d -= 2 * (rows @ (V[j] - centre).T)
            d -= (diagonal[k, None] - V[j, k].T) ** 2  # entry k: (P_kk - P_jk)^2
            d -= (V[k, j] - diagonal[j]) ** 2  # entry j: (P_kj - P_jj)^2
            np.maximum(d, 0.0, out=d)
            if j == k:
                d = (d + d.T) / 2
                np.fill_diagonal(d, 0.0)
            yield k, j, d


def blocks(K: int) -> list[slice]:
    return [slice(i, min(i + LARGE, K)) for i in range(0, K, LARGE)]


def square(P: ArrayLike) -> NDArray[Any]:
    """Check a matrix over pairs, in the type for its size."""
    V = numbers(P, "P")
    if V.ndim != 2 or V.shape[0] != V.shape[1] or not len(V):
        raise InputError(f"P must be square, one row and column per client, got shape {V.shape}")
    V = V.astype(np.float64 if len(V) <= LARGE else np.float32, copy=False)
    if not np.isfinite([V.min(), V.max()]).all():
        raise InputError("P holds NaN or infinite values; an interaction matrix has entries in [0, 1]")
    return V


def perception_distances(V: ArrayLike, visits: ArrayLike) -> NDArray[Any]:
    """Compute mean squared differences between UPVs [K, K].

    Squared distances divided by the number of entries. V and visits [K, K] -> [K, K], diagonal 0.

    For a pair that never met, the client's mean over all its rounds, which is on the diagonal, stands in. A client that was in
    no round is placed in the middle of the others.

    >>> perception_distances([[0.2, 0.2, 0.2], [0.2, 0.2, 0.2], [0.8, 0.8, 0.8]], np.ones((3, 3))).round(2).tolist()
    [[0.0, 0.0, 0.36], [0.0, 0.0, 0.36], [0.36, 0.36, 0.0]]
    """
    view, times = square(V).copy(), numbers(visits, "visits")
    if times.shape != view.shape:
        raise InputError(f"visits must be of the shape {view.shape}, one count per pair of clients, got {times.shape}")
    check_counts(times, "visits")
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
    """Fill in pairs that never met, in place.

    Such a pair gets its first client's mean, and a client that was in no round the others' means.
    """
    for k in blocks(len(view)):
        np.copyto(view[k], np.diag(view)[k, None], where=visits[k] <= 0)
    away = np.diag(visits) <= 0
    if away.any() and not away.all():
        view[away] = (view.sum(0, dtype=np.float64) - view[away].sum(0, dtype=np.float64)) / (~away).sum()
