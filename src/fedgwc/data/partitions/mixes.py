"""Class mixes drawn from a Dirichlet distribution, and samples dealt by them."""

from __future__ import annotations

import warnings

import numpy as np

from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats, Ids


def dirichlet_rows(concentration: float, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Draw each row from a symmetric Dirichlet distribution.

    Gammas are normalised in log space: for a tiny concentration every gamma variate underflows to 0.
    """
    a = max(concentration, np.finfo(np.float64).tiny)
    u = np.log(rng.random(shape))
    with np.errstate(over="ignore"):
        log = np.log(rng.gamma(a + 1, size=shape)) + (u - u.max(1, keepdims=True)) / a
    raw = np.exp(log - log.max(1, keepdims=True))
    q: Floats = raw / raw.sum(1, keepdims=True)
    return q


def class_mixes(n_clients: int, n_classes: int, alpha: float, rng: np.random.Generator) -> Floats:
    """Draw class mixes [n_clients, C] from Dir(alpha / C, ..., alpha / C).

    >>> class_mixes(2, 2, 0, np.random.default_rng(0)).sum(0).tolist()  # a class each, and each class once
    [1.0, 1.0]
    """
    if not isinstance(alpha, int | float | np.number) or not 0 <= alpha < np.inf:
        raise InputError(f"dirichlet alpha must be >= 0, got {alpha}; 0 gives one class per client")
    if alpha == 0:
        turns = -(-n_clients // n_classes)
        order = np.concatenate([rng.permutation(n_classes) for _ in range(turns)])[:n_clients]
        one_hot: Floats = np.eye(n_classes)[order]
        return one_hot
    return dirichlet_rows(alpha / n_classes, (n_clients, n_classes), rng)


def deal_mixes(y: Ids, mixes: Floats, sizes: Ids, rng: np.random.Generator) -> list[Ids]:
    """Deal clients of these sizes [n_clients] samples by their mixes, without replacement.

    A class that is used up leaves the mix, which is renormalised. A client with nothing left of its mix goes on with the
    uniform mix over the classes that remain, and a warning says how many clients did.
    """
    n_classes = mixes.shape[1]
    pools = [rng.permutation(np.flatnonzero(y == c)) for c in range(n_classes)]
    left = np.array([len(pool) for pool in pools])
    dealt: list[Ids] = []
    filled = 0
    for weights, size in zip(mixes, sizes, strict=True):
        take, foreign = _take(weights, int(size), left, rng)
        dealt.append(np.concatenate([pools[c][left[c] - take[c] : left[c]] for c in np.flatnonzero(take)]))
        left -= take
        filled += foreign
    if filled:
        warn_filled(filled, len(mixes))
    return dealt


def _take(weights: Floats, size: int, left: Ids, rng: np.random.Generator) -> tuple[Ids, bool]:
    """Draw one client's samples per class; tell if foreign ones were needed."""
    take, foreign = np.zeros(len(left), np.int64), False
    while (missing := size - int(take.sum())) > 0:
        free = left - take
        p = np.where(free > 0, weights, 0.0)
        if p.sum() == 0:
            p, foreign = (free > 0).astype(np.float64), True
        # What a class cannot give is drawn again from the rest, as drawing one by one would do.
        take += np.minimum(rng.multinomial(missing, p / p.sum()), free)
    return take, foreign


def warn_filled(filled: int, n_clients: int) -> None:
    """Warn that clients hold samples of foreign classes."""
    warnings.warn(
        f"{filled} of {n_clients} clients ran out of their own classes and were filled up from the classes that remained",
        stacklevel=3,
    )
