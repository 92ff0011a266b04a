"""Clients of different sizes whose samples are alike (Li et al., 2022)."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats, Ids
from fedgwc.data.partitions.checks import check_concentration, check_demand, check_min_size, generator
from fedgwc.data.partitions.mixes import dirichlet_rows

Beta = Annotated[float, "concentration of the sizes: 0.5 is a few large clients, 1000 nearly equal sizes"]
Sigma = Annotated[float, "deviation of the logarithm of sizes: 0 is equal sizes, 2 a few large clients"]
MinSize = Annotated[int, "samples that every client has at least"]


def quantity(rows: ArrayLike, n_clients: int, size: int, seed: int, *, beta: Beta = 0.5, min_size: MinSize = 1) -> list[Ids]:
    """Deal sizes by one draw from Dir(beta) over clients; samples at random.

    Li et al., *Federated Learning on Non-IID Data Silos*, 2022, "quantity skew". `size` is the mean. Every client has
    `min_size` samples, and the draw shares out the others.

    >>> sum(len(mine) for mine in quantity(range(100), n_clients=4, size=25, seed=0))
    100
    """
    rng = generator(seed)
    return _at_random(rows, dirichlet_sizes(n_clients, size, beta, min_size, rng), size, rng)


def quantity_lognormal(
    rows: ArrayLike, n_clients: int, size: int, seed: int, *, sigma: Sigma = 1.0, min_size: MinSize = 1
) -> list[Ids]:
    """Deal sizes by draws from a log-normal distribution; samples at random.

    Li et al., *Federated Optimization in Heterogeneous Networks* (FedProx), 2020. `size` is the mean, as for `quantity`.

    >>> sorted(len(mine) for mine in quantity_lognormal(range(100), n_clients=4, size=25, seed=0, sigma=0.0))
    [25, 25, 25, 25]
    """
    if not 0 <= sigma < math.inf:
        raise InputError(f"sigma must be >= 0 and finite, got {sigma}; 0 is equal sizes")
    rng = generator(seed)
    log = sigma * rng.standard_normal(n_clients)
    return _at_random(rows, shared_out(np.exp(log - log.max()), size, min_size), size, rng)


def dirichlet_sizes(n_clients: int, size: int, beta: float, min_size: int, rng: np.random.Generator) -> Ids:
    """Draw sizes [n_clients] of this mean from a Dirichlet distribution."""
    check_concentration(beta, "beta", "1000 is nearly equal sizes")
    return shared_out(dirichlet_rows(beta, (1, n_clients), rng)[0], size, min_size)


def shared_out(weights: Floats, size: int, min_size: int) -> Ids:
    """Turn weights [n_clients] into sizes of mean `size`, rounded to whole samples.

    >>> shared_out(np.array([3.0, 1.0]), size=3, min_size=1).tolist()
    [4, 2]
    """
    check_min_size(min_size, size)
    total = len(weights) * (size - min_size)
    quota = weights / weights.sum() * total
    whole: Ids = np.floor(quota).astype(np.int64)
    whole[np.argsort(whole - quota, kind="stable")[: total - whole.sum()]] += 1
    whole += min_size
    return whole


def _at_random(rows: ArrayLike, sizes: Ids, size: int, rng: np.random.Generator) -> list[Ids]:
    """Deal samples to clients of these sizes, whatever their classes."""
    n_samples = len(rows)  # type: ignore[arg-type]
    check_demand(n_samples, len(sizes), size)
    return np.split(rng.permutation(n_samples)[: sizes.sum()], sizes.cumsum()[:-1])
