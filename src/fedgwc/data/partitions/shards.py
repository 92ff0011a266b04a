"""Shards of data that are sorted by class (McMahan et al., 2017)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids
from fedgwc.data.partitions.checks import check_demand, checked_labels, generator


def shards(
    labels: ArrayLike, n_clients: int, size: int, seed: int, *, shards: Annotated[int, "per client; must divide its size"] = 2
) -> list[Ids]:
    """Deal equal shards of the samples, sorted by class.

    McMahan et al., *Communication-Efficient Learning of Deep Networks from Decentralized Data*, 2017. All clients are of equal
    size, and a shard may hold two classes.

    >>> sorted(sorted(mine.tolist()) for mine in shards([0, 0, 1, 1], n_clients=2, size=2, seed=0, shards=1))
    [[0, 1], [2, 3]]
    """
    y = checked_labels(labels)
    check_demand(len(y), n_clients, size)
    if shards < 1 or size % shards:
        raise InputError(f"shards must divide the client size {size}, got {shards}; choose a divisor")
    rng = generator(seed)
    n_shards, length = n_clients * shards, size // shards
    # A random subset of the right size, sorted by label, so that every class can appear.
    order = rng.permutation(len(y))[: n_shards * length]
    order = order[np.argsort(y[order], kind="stable")]
    pieces = order.reshape(n_shards, length)[rng.permutation(n_shards)]
    return list(pieces.reshape(n_clients, size))
