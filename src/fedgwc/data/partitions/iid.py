"""Clients of equal distribution."""

from __future__ import annotations

from numpy.typing import ArrayLike

from fedgwc.core.types import Ids
from fedgwc.data.partitions.checks import check_demand, generator


def iid(rows: ArrayLike, n_clients: int, size: int, seed: int) -> list[Ids]:
    """Deal equal sizes, each a uniform draw from all samples.

    >>> [len(mine) for mine in iid(range(10), n_clients=3, size=3, seed=0)]
    [3, 3, 3]
    """
    n_samples = len(rows)  # type: ignore[arg-type]
    check_demand(n_samples, n_clients, size)
    order = generator(seed).permutation(n_samples)[: n_clients * size]
    return list(order.reshape(n_clients, size))
