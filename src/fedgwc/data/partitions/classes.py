"""A fixed number of classes for each client (Li et al., 2022)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids
from fedgwc.data.partitions.checks import check_demand, checked_labels, generator


def classes(
    labels: ArrayLike, n_clients: int, size: int, seed: int, *, classes: Annotated[int, "how many each client holds"] = 2
) -> list[Ids]:
    """Deal each client as many classes, in equal parts.

    Li et al., *Federated Learning on Non-IID Data Silos*, 2022, "#C = k". Each class goes to as many clients, so far as the
    numbers allow. Where clients want more of a class than there is, they share it evenly and stay below `size`.

    >>> [sorted(mine.tolist()) for mine in classes([0, 0, 1, 1], n_clients=1, size=4, seed=0)]
    [[0, 1, 2, 3]]
    """
    y, rng = checked_labels(labels), generator(seed)
    check_demand(len(y), n_clients, size)
    there = np.bincount(y)
    most = min(size, int(np.count_nonzero(there)))
    if not 1 <= classes <= most:
        raise InputError(f"classes must be in 1..{most}, the classes that are left and a client's samples, got {classes}")
    held = _held(there, n_clients, classes, rng)
    take = _even_shares(held, there, size)
    if len(empty := np.flatnonzero(take.sum(1) == 0)):
        raise InputError(
            f"client {empty[0]} finds its classes used up ({len(empty)} such clients); "
            "take fewer clients or more classes for each, or deal this group out before others"
        )
    pools = [rng.permutation(np.flatnonzero(y == c)) for c in range(len(there))]
    pieces = [np.split(pool, until) for pool, until in zip(pools, take.cumsum(0).T, strict=True)]
    return [np.concatenate(mine) for mine in list(zip(*pieces, strict=True))[:n_clients]]


def _held(there: Ids, n_clients: int, k: int, rng: np.random.Generator) -> Ids:
    """Choose the classes of each client: [n_clients, C] of 0 and 1."""
    held = np.zeros((n_clients, len(there)), np.int64)
    present = np.flatnonzero(there)
    for client in range(n_clients):  # those that the fewest hold, at random among equals
        order = np.lexsort((rng.random(len(present)), held[:, present].sum(0)))
        held[client, present[order[:k]]] = 1
    return held


def _even_shares(held: Ids, there: Ids, size: int) -> Ids:
    """Share sizes among classes and scarce classes among clients: [n_clients, C]."""
    turn = held.cumsum(1) * held  # 1, 2, ... for a client's classes
    k = held.sum(1, keepdims=True)
    want = held * (size // k + (turn <= size % k))
    holders = held.sum(0)
    turn = held.cumsum(0) * held
    share = held * (there // np.maximum(holders, 1) + (turn <= there % np.maximum(holders, 1)))
    scarce = want.sum(0) > there
    take: Ids = np.where(scarce, np.minimum(want, share), want)
    return take
