"""Class mixes by a Dirichlet draw for each client (Hsu et al., 2019)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from fedgwc.core.types import Ids
from fedgwc.data.partitions.checks import check_demand, checked_labels, generator
from fedgwc.data.partitions.mixes import class_mixes, deal_mixes

Alpha = Annotated[float, "heterogeneity of class mixes: 0 is one class per client, 1000 nearly the same mix for all"]


def dirichlet(labels: ArrayLike, n_clients: int, size: int, seed: int, *, alpha: Alpha = 0.5) -> list[Ids]:
    """Deal equal sizes, one class mix ~ Dir(alpha / C) per client.

    Hsu et al., *Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification*, 2019. The
    concentration of one class is alpha / C. A class that is used up leaves the mix; a client with nothing left of its mix
    is filled up with the classes that remain.

    >>> sorted(sorted(mine.tolist()) for mine in dirichlet([0, 0, 1, 1], n_clients=2, size=2, seed=0, alpha=0))
    [[0, 1], [2, 3]]
    """
    y, rng = checked_labels(labels), generator(seed)
    check_demand(len(y), n_clients, size)
    mixes = class_mixes(n_clients, int(y.max()) + 1, alpha, rng)
    return deal_mixes(y, mixes, np.full(n_clients, size), rng)
