"""Ways to deal samples out to clients. Each sample goes to at most one client."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike

from fedgwc.core import Floats, Ids
from fedgwc.errors import InputError


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
    _check_demand(len(y), n_clients, size)
    n_classes = int(y.max()) + 1
    rng = np.random.default_rng(seed)
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
        warnings.warn(
            f"{filled} of {n_clients} clients ran out of their own classes and were filled up from the classes that remained",
            stacklevel=2,
        )
    return rows, q


def iid(n_samples: int, n_clients: int, size: int, seed: int) -> list[Ids]:
    """Clients of equal size, each a uniform draw from all samples."""
    _check_demand(n_samples, n_clients, size)
    order = np.random.default_rng(seed).permutation(n_samples)[: n_clients * size]
    return list(order.reshape(n_clients, size))


def shards(labels: ArrayLike, n_clients: int, per_client: int, size: int, seed: int) -> list[Ids]:
    """McMahan et al. (2017): sort by label, cut into equal shards, deal `per_client` shards to each client."""
    y = _labels(labels)
    _check_demand(len(y), n_clients, size)
    if per_client < 1 or size % per_client:
        raise InputError(f"shards must divide the client size {size}, got {per_client}; choose a divisor")
    rng = np.random.default_rng(seed)
    n_shards, length = n_clients * per_client, size // per_client
    order = rng.permutation(len(y))
    # A random subset of the right size, sorted by label, so that every class can appear.
    order = order[: n_shards * length]
    order = order[np.argsort(y[order], kind="stable")]
    pieces = order.reshape(n_shards, length)[rng.permutation(n_shards)]
    return list(pieces.reshape(n_clients, size))


def _labels(labels: ArrayLike) -> Ids:
    y = np.asarray(labels)
    if y.ndim != 1 or not len(y) or not np.issubdtype(y.dtype, np.integer) or y.min() < 0:
        raise InputError(f"labels must be a non-empty vector of integers >= 0, got shape {y.shape} of {y.dtype}")
    return y.astype(np.int64)


def _check_demand(n_samples: int, n_clients: int, size: int) -> None:
    if n_clients < 1 or size < 1:
        raise InputError(f"need at least one client of at least one sample, got {n_clients} clients of {size}")
    if n_clients * size > n_samples:
        raise InputError(
            f"{n_clients} clients of {size} samples need {n_clients * size}, but there are {n_samples}; "
            f"use at most {n_samples // n_clients} each or fewer clients"
        )


def _mixes(n_clients: int, n_classes: int, alpha: float, rng: np.random.Generator) -> Floats:
    if not (np.isfinite(alpha) and alpha >= 0):
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
