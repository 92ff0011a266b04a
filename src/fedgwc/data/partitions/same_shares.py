"""Test sets with the class shares of training sets."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import linprog

from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats, Ids
from fedgwc.data.partitions.checks import checked_labels, generator
from fedgwc.data.partitions.mixes import warn_filled


def same_shares(labels: ArrayLike, counts: ArrayLike, sizes: ArrayLike, seed: int) -> list[Ids]:
    """Deal clients the class shares of `counts` [n_clients, C].

    Shares are rounded to whole samples, and `sizes` [n_clients] may differ. Test sets are made like this: drawn at random from
    the mix of a training set, they would hold classes that are not in it. Where a class is used up, a client takes more of its
    other classes, and where these are too, of any; a warning says how many did.

    >>> [rows] = same_shares([0, 0, 0, 1, 1, 1, 2], counts=[[50, 25, 0]], sizes=[3], seed=0)
    >>> sorted([0, 0, 0, 1, 1, 1, 2][i] for i in rows)
    [0, 0, 1]
    """
    y, wanted, size = checked_labels(labels), np.asarray(counts, np.float64), np.asarray(sizes, np.int64)
    _check(y, wanted, size)
    rng = generator(seed)
    quota = wanted / wanted.sum(1, keepdims=True) * size[:, None]
    pools = [rng.permutation(np.flatnonzero(y == c)) for c in range(wanted.shape[1])]
    there = np.array([len(pool) for pool in pools])
    whole = np.floor(quota + 1e-9).astype(np.int64)
    take = np.diff(np.minimum(whole.cumsum(0), there), axis=0, prepend=0)
    take += _rounded_up(quota - take, size - take.sum(1), there - take.sum(0))
    left = there - take.sum(0)
    for allowed in (wanted > 0, np.ones(wanted.shape, bool)):  # everybody more of its own classes, then of any
        for k in np.flatnonzero(take.sum(1) < size):
            while (missing := size[k] - take[k].sum()) and (free := allowed[k] & (left > 0)).any():
                order = np.lexsort((rng.random(len(free)), take[k] - quota[k]))
                more = order[free[order]][:missing]
                take[k, more] += 1
                left[more] -= 1
    if filled := int(((take > 0) & (wanted == 0)).any(1).sum()):
        warn_filled(filled, len(wanted))
    until = take.cumsum(0)
    hands = [[pool[b - n : b] for pool, b, n in zip(pools, *each, strict=True)] for each in zip(until, take, strict=True)]
    return [np.concatenate(hand) for hand in hands]


def _check(y: Ids, wanted: Floats, size: Ids) -> None:
    """Check that counts and sizes fit each other and the labels."""
    if wanted.ndim != 2 or wanted.shape[1] <= y.max() or not (np.isfinite(wanted).all() and (wanted >= 0).all()):
        raise InputError(f"counts must be [n_clients, more than {y.max()}] samples per class, got shape {wanted.shape}")
    if not wanted.sum(1).all() or size.shape != wanted.shape[:1]:
        raise InputError(f"every client needs a size and samples in counts, got sizes {size.shape} and counts {wanted.shape}")
    if size.min() < 1 or size.sum() > len(y):
        raise InputError(f"{len(size)} clients of {size.min()} to {size.max()} samples need {size.sum()}, but there are {len(y)}")


def _rounded_up(rest: Floats, missing: Ids, left: Ids) -> Ids:
    """Round fractions [K, C] up to 1, large ones first.

    A client lacks `missing` [K] samples, and of a class `left` [C] are there. Client by client the last ones would find their
    classes used up where all samples are. So it is a linear program for all of them; the corners of this kind (a transport
    problem) are whole numbers.
    """
    k, c = np.nonzero((rest > 1e-9) & (left > 0))
    up = np.zeros(rest.shape, np.int64)
    if len(k):
        each = np.arange(len(k))
        used = sparse.csr_array((np.ones(2 * len(k)), (np.r_[k, len(rest) + c], np.r_[each, each])))
        most = np.r_[missing, left][: used.shape[0]]
        found = linprog(-1 - rest[k, c], A_ub=used, b_ub=most, bounds=(0, 1), method="highs-ds")
        up[k, c] = np.rint(found.x)
    return up
