"""Clients of different class mixes and sizes."""

from __future__ import annotations

from numpy.typing import ArrayLike

from fedgwc.core.types import Ids
from fedgwc.data.partitions.checks import check_demand, checked_labels, generator
from fedgwc.data.partitions.dirichlet import Alpha
from fedgwc.data.partitions.mixes import class_mixes, deal_mixes
from fedgwc.data.partitions.quantity import Beta, MinSize, dirichlet_sizes


def label_quantity(
    labels: ArrayLike,
    n_clients: int,
    size: int,
    seed: int,
    *,
    alpha: Alpha = 0.5,
    beta: Beta = 0.5,
    min_size: MinSize = 1,
) -> list[Ids]:
    """Deal class mixes as `dirichlet` does and sizes as `quantity` does.

    The two draws are independent, so that neither tells the other. `size` is the mean.

    >>> sum(len(mine) for mine in label_quantity([0, 1] * 20, n_clients=4, size=10, seed=0))
    40
    """
    y, rng = checked_labels(labels), generator(seed)
    check_demand(len(y), n_clients, size)
    sizes = dirichlet_sizes(n_clients, size, beta, min_size, rng)
    return deal_mixes(y, class_mixes(n_clients, int(y.max()) + 1, alpha, rng), sizes, rng)
