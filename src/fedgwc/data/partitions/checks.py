"""Checks of partitions' arguments."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids


def checked_labels(labels: ArrayLike) -> Ids:
    """Return the labels as a vector of whole numbers."""
    y = np.asarray(labels)
    if y.ndim != 1 or not len(y) or not np.issubdtype(y.dtype, np.integer) or y.min() < 0:
        raise InputError(f"labels must be a non-empty vector of integers >= 0, got shape {y.shape} of {y.dtype}")
    return y.astype(np.int64)


def generator(seed: int) -> np.random.Generator:
    """Return the random generator of a seed."""
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be a whole number >= 0, got {seed!r}")
    return np.random.default_rng(seed)


def check_demand(n_samples: int, n_clients: int, size: int) -> None:
    """Check that the samples suffice for these clients."""
    if not all(isinstance(n, int | np.integer) for n in (n_clients, size)):
        raise InputError(f"the number of clients and their size must be whole numbers, got {n_clients!r}, {size!r}")
    if n_clients < 1 or size < 1:
        raise InputError(f"need at least one client of at least one sample, got {n_clients} clients of {size}")
    if n_clients * size > n_samples:
        raise InputError(
            f"{n_clients} clients of {size} samples need {n_clients * size}, but there are {n_samples}; "
            f"use at most {n_samples // n_clients} each or fewer clients"
        )


def check_concentration(value: float, name: str, large: str) -> None:
    """Check the concentration of a Dirichlet draw over clients."""
    if not 0 < value < math.inf:
        raise InputError(f"{name} must be > 0 and finite, got {value}; {large}")


def check_min_size(min_size: int, size: int) -> None:
    """Check that clients of this mean size can all have `min_size` samples."""
    if not 1 <= min_size <= size:
        raise InputError(
            f"min_size must be in 1..{size}, the mean size of a client, got {min_size}; lower it or raise train_size"
        )
