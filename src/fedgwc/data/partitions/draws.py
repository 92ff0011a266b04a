"""Ways to deal samples out to clients. Each sample goes to at most one client."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import linprog

from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats, Ids


def dirichlet(
    labels: ArrayLike, n_clients: int, alpha: float, size: int, seed: int, mix: ArrayLike | None = None
) -> tuple[list[Ids], Floats]:
    """Clients of equal size whose class mixes follow Hsu et al. (2019): q_k ~ Dir(alpha * prior), prior uniform.

    The concentration of one class is therefore alpha / C: small alpha gives clients of very few classes, alpha = 0 exactly
    one class each (classes dealt out evenly), a large alpha the same mix for all. Samples are drawn without replacement; an
    exhausted class leaves the mix, which is renormalised; a client with nothing left in its mix goes on with the uniform
    mix over the classes that remain, and a warning says how many did.

    labels [R]; returns (n_clients arrays of `size` row numbers, mix [n_clients, C]). Pass the mix of a training partition
    to draw test sets with the same mixes.

    >>> rows, mix = dirichlet([0, 0, 1, 1], n_clients=2, alpha=0, size=2, seed=0)
    >>> sorted(sorted(int(i) for i in r) for r in rows)
    [[0, 1], [2, 3]]
    """
    y = _labels(labels)
    rng = _rng(seed)
    _check_demand(len(y), n_clients, size)
    n_classes = int(y.max()) + 1
    if mix is None:
        q = _mixes(n_clients, n_classes, alpha, rng)
    else:
        q = np.asarray(mix, np.float64)
        if q.ndim != 2 or len(q) != n_clients or q.shape[1] < n_classes or not (np.isfinite(q).all() and (q >= 0).all()):
            raise InputError(
                f"mix must be [{n_clients}, at least {n_classes}] of non-negative weights, got shape {q.shape}; "
                "pass the mix returned for the training data"
            )
        n_classes = q.shape[1]
    rows, filled = _deal(y, q, size, n_classes, rng)
    if filled:
        _warn_filled(filled, n_clients)
    return rows, q


def alike(labels: ArrayLike, counts: ArrayLike, sizes: ArrayLike, seed: int) -> list[Ids]:
    """Clients of `sizes` [n_clients] with the class shares of `counts` [n_clients, C], rounded to whole samples.

    So are test sets made: drawn at random from the mix of a training set, they would hold classes that are not in it. Where
    a class is used up, a client takes more of its other classes, and where these are too, of any; a warning says how many did.

    >>> [rows] = alike([0, 0, 0, 1, 1, 1, 2], counts=[[50, 25, 0]], sizes=[3], seed=0)
    >>> sorted([0, 0, 0, 1, 1, 1, 2][i] for i in rows)
    [0, 0, 1]
    """
    y, wanted, size = _labels(labels), np.asarray(counts, np.float64), np.asarray(sizes, np.int64)
    if wanted.ndim != 2 or wanted.shape[1] <= y.max() or not (np.isfinite(wanted).all() and (wanted >= 0).all()):
        raise InputError(f"counts must be [n_clients, more than {y.max()}] samples per class, got shape {wanted.shape}")
    if not wanted.sum(1).all() or size.shape != wanted.shape[:1]:
        raise InputError(f"every client needs a size and samples in counts, got sizes {size.shape} and counts {wanted.shape}")
    if size.min() < 1 or size.sum() > len(y):
        raise InputError(f"{len(size)} clients of {size.min()} to {size.max()} samples need {size.sum()}, but there are {len(y)}")
    rng = _rng(seed)
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
        _warn_filled(filled, len(wanted))
    until = take.cumsum(0)
    hands = [[pool[b - n : b] for pool, b, n in zip(pools, *each, strict=True)] for each in zip(until, take, strict=True)]
    return [np.concatenate(hand) for hand in hands]


def iid(n_samples: int, n_clients: int, size: int, seed: int) -> list[Ids]:
    """Clients of equal size, each a uniform draw from all samples."""
    _check_demand(n_samples, n_clients, size)
    order = _rng(seed).permutation(n_samples)[: n_clients * size]
    return list(order.reshape(n_clients, size))


def shards(labels: ArrayLike, n_clients: int, per_client: int, size: int, seed: int) -> list[Ids]:
    """McMahan et al. (2017): sort by label, cut into equal shards, deal `per_client` shards to each client."""
    y = _labels(labels)
    _check_demand(len(y), n_clients, size)
    if per_client < 1 or size % per_client:
        raise InputError(f"shards must divide the client size {size}, got {per_client}; choose a divisor")
    rng = _rng(seed)
    n_shards, length = n_clients * per_client, size // per_client
    order = rng.permutation(len(y))
    # A random subset of the right size, sorted by label, so that every class can appear.
    order = order[: n_shards * length]
    order = order[np.argsort(y[order], kind="stable")]
    pieces = order.reshape(n_shards, length)[rng.permutation(n_shards)]
    return list(pieces.reshape(n_clients, size))


def _warn_filled(filled: int, n_clients: int) -> None:
    warnings.warn(
        f"{filled} of {n_clients} clients ran out of their own classes and were filled up from the classes that remained",
        stacklevel=3,
    )


def _labels(labels: ArrayLike) -> Ids:
    y = np.asarray(labels)
    if y.ndim != 1 or not len(y) or not np.issubdtype(y.dtype, np.integer) or y.min() < 0:
        raise InputError(f"labels must be a non-empty vector of integers >= 0, got shape {y.shape} of {y.dtype}")
    return y.astype(np.int64)


def _rng(seed: int) -> np.random.Generator:
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be a whole number >= 0, got {seed!r}")
    return np.random.default_rng(seed)


def _check_demand(n_samples: int, n_clients: int, size: int) -> None:
    if not all(isinstance(n, int | np.integer) for n in (n_clients, size)):
        raise InputError(f"the number of clients and their size must be whole numbers, got {n_clients!r}, {size!r}")
    if n_clients < 1 or size < 1:
        raise InputError(f"need at least one client of at least one sample, got {n_clients} clients of {size}")
    if n_clients * size > n_samples:
        raise InputError(
            f"{n_clients} clients of {size} samples need {n_clients * size}, but there are {n_samples}; "
            f"use at most {n_samples // n_clients} each or fewer clients"
        )


def _mixes(n_clients: int, n_classes: int, alpha: float, rng: np.random.Generator) -> Floats:
    if not isinstance(alpha, int | float | np.number) or not 0 <= alpha < np.inf:
        raise InputError(f"dirichlet alpha must be >= 0, got {alpha}; 0 gives one class per client")
    if alpha == 0:
        turns = -(-n_clients // n_classes)
        order = np.concatenate([rng.permutation(n_classes) for _ in range(turns)])[:n_clients]
        one_hot: Floats = np.eye(n_classes)[order]
        return one_hot
    # A Dirichlet as normalised gammas in log space: for a tiny alpha / C every gamma variate underflows to 0.
    a = max(alpha / n_classes, np.finfo(np.float64).tiny)
    u = np.log(rng.random((n_clients, n_classes)))
    with np.errstate(over="ignore"):
        log = np.log(rng.gamma(a + 1, size=u.shape)) + (u - u.max(1, keepdims=True)) / a
    raw = np.exp(log - log.max(1, keepdims=True))
    q: Floats = raw / raw.sum(1, keepdims=True)
    return q


def _rounded_up(rest: Floats, missing: Ids, left: Ids) -> Ids:
    """Which of the fractions `rest` [K, C] become 1, of large ones rather: `missing` [K] of a client, `left` [C] of a class.

    Client by client the last ones would find their classes used up where all samples are. So it is a linear program for all
    of them; the corners of this kind (a transport problem) are whole numbers.
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


def _deal(y: Ids, q: Floats, size: int, n_classes: int, rng: np.random.Generator) -> tuple[list[Ids], int]:
    """Rows per client, and how many clients had to be filled up with foreign classes."""
    pools = [rng.permutation(np.flatnonzero(y == c)) for c in range(n_classes)]
    left = np.array([len(pool) for pool in pools])
    dealt: list[Ids] = []
    filled = 0
    for weights in q:
        take = np.zeros(n_classes, np.int64)
        foreign = False
        while (missing := size - int(take.sum())) > 0:
            free = left - take
            p = np.where(free > 0, weights, 0.0)
            if p.sum() == 0:
                p, foreign = (free > 0).astype(np.float64), True
            # What a class cannot give is drawn again from the rest, as drawing one by one would do.
            take += np.minimum(rng.multinomial(missing, p / p.sum()), free)
        dealt.append(np.concatenate([pools[c][left[c] - take[c] : left[c]] for c in np.flatnonzero(take)]))
        left -= take
        filled += foreign
    return dealt, filled
