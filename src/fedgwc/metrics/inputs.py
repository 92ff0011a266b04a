"""Checks of the metrics' arguments: arrays, lists or tensors."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats, Ids


def class_counts(counts: ArrayLike, *, empty_rows: bool = False) -> Floats:
    """Return class counts [K, C] as floats.

    A client without any sample is refused unless `empty_rows`.
    """
    try:
        array = np.asarray(counts, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("class counts must be numbers [clients, classes], one row per client and equally long rows") from error
    if array.ndim != 2 or not array.size:
        raise InputError(f"class counts must be [clients, classes], got shape {array.shape}; give one row per client")
    bad = ~np.isfinite(array) | (array < 0)
    if bad.any():
        client, c = np.argwhere(bad)[0]
        raise InputError(f"class counts must be finite and >= 0, got {array[client, c]} for client {client}, class {c}")
    if not empty_rows and not array.any(1).all():
        client = int(np.flatnonzero(~array.any(1))[0])
        raise InputError(f"client {client} has no samples in any class; leave clients without data out of counts and labels")
    return array


def cluster_labels(labels: ArrayLike, n_clients: int | None = None, name: str = "labels") -> Ids:
    """Number the clusters 0, 1, ..., one per client.

    Their names may be of any type.
    """
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise InputError(f"{name} must be one cluster per client, got rows of unequal length") from error
    if array.ndim != 1 or not len(array):
        raise InputError(f"{name} must be one cluster per client, got shape {array.shape}; give a flat list")
    if n_clients is not None and len(array) != n_clients:
        raise InputError(f"{name} must be one cluster per client, got {len(array)} for {n_clients} clients")
    if array.dtype.kind not in "biufUS" or (array.dtype.kind == "f" and not np.isfinite(array).all()):
        raise InputError(f"{name} must be whole numbers or names; give every client a cluster, without NaN or None")
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def histogram(counts: Floats) -> Floats | None:
    """Return class counts [N, C], or None if unknown.

    One column says nothing of classes; older folders have it where nodes did not report them.
    """
    return None if counts.shape[1] < 2 else counts
