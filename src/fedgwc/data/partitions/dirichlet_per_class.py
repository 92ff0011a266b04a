"""Each class split over the clients by a Dirichlet draw (Yurochkin et al., 2019; Li et al., 2022)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids
from fedgwc.data.partitions.checks import check_concentration, check_demand, check_min_size, checked_labels, generator
from fedgwc.data.partitions.mixes import dirichlet_rows

DRAWS = 1000  # published code draws for ever, which ends a run nowhere where no draw will do


def dirichlet_per_class(
    labels: ArrayLike,
    n_clients: int,
    size: int,
    seed: int,
    *,
    alpha: Annotated[float, "concentration of one client's share of a class; smaller is more heterogeneous"] = 0.5,
    min_size: Annotated[int, "samples of the smallest client; the draw is repeated until all have as many"] = 1,
    self_balancing: Annotated[bool, "a client that has the mean size gets no more classes, as in published code"] = True,
) -> list[Ids]:
    """Split each class over clients by Dir(alpha); sizes follow.

    Yurochkin et al., *Bayesian Nonparametric Federated Learning*, 2019, and Li et al., *Federated Learning on Non-IID Data
    Silos* (NIID-Bench), 2022. All `n_clients * size` samples, drawn at random, are dealt out, so `size` is the mean.

    >>> rows = dirichlet_per_class([0, 0, 0, 1, 1, 1], n_clients=2, size=3, seed=0)
    >>> sorted(np.concatenate(rows).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    y, rng = checked_labels(labels), generator(seed)
    check_demand(len(y), n_clients, size)
    check_concentration(alpha, "alpha", "1000 is nearly the same mix for all")
    check_min_size(min_size, size)
    chosen = rng.permutation(len(y))[: n_clients * size]
    pools = [chosen[y[chosen] == c] for c in range(int(y.max()) + 1)]
    most = size if self_balancing else len(y)
    counts = _counts([len(pool) for pool in pools], n_clients, alpha, most, min_size, rng)
    pieces = [np.split(pool, cuts) for pool, cuts in zip(pools, counts.cumsum(0)[:-1].T, strict=True)]
    return [np.concatenate(mine) for mine in zip(*pieces, strict=True)]


def _counts(classes: list[int], n_clients: int, alpha: float, most: int, min_size: int, rng: np.random.Generator) -> Ids:
    """Draw counts [n_clients, C] until every client has `min_size`."""
    best, smallest = -1, 0
    for _ in range(DRAWS):
        counts = np.zeros((n_clients, len(classes)), np.int64)
        for c, n in enumerate(classes):
            open_to = counts.sum(1) < most
            shares = dirichlet_rows(alpha, (1, n_clients), rng)[0] * open_to
            shares = shares if shares.sum() > 0 else open_to.astype(float)  # whoever is left has a share below 1e-300
            until = (np.cumsum(shares / shares.sum()) * n + 1e-9).astype(np.int64)
            counts[:, c] = np.diff(until, prepend=0)
        sizes = counts.sum(1)
        if sizes.min() >= min_size:
            return counts
        if sizes.min() > best:
            best, smallest = int(sizes.min()), int(sizes.argmin())
    raise InputError(
        f"client {smallest} of {n_clients} would have {best} samples in the best of {DRAWS} draws, and min_size is {min_size}; "
        f"raise alpha (it is {alpha:g}) or train_size, or take fewer clients or classes that are dealt by partition=dirichlet"
    )
