"""Coordinates of clients from their distances: classical scaling, and principal axes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.fedgwc.clustering import largest_eigenpairs
from fedgwc.core.types import Floats


def coordinates(distances: NDArray[Any], n: int) -> Floats:
    """The leading axes [K, m] of points with these squared distances [K, K] (classical scaling), with mean 0 and variance 1.

    m is at most n: axes along which nobody differs are left out.
    """
    K = len(distances)
    n = min(n, K - 1)
    if n < 1:
        return np.zeros((K, 0))

    def product(x: NDArray[Any]) -> NDArray[Any]:
        y = -0.5 * (distances @ (x - x.mean()))
        return np.asarray(y - y.mean())

    def whole() -> NDArray[Any]:
        rows = distances - distances.mean(0)
        return np.asarray(-0.5 * (rows - rows.mean(1, keepdims=True)))

    most = max(float(distances.max()), -float(distances.min()))
    if not most:
        return np.zeros((K, 0))  # ARPACK cannot start on a zero matrix
    values, vectors = largest_eigenpairs(distances, n, product, whole)
    real = values > max(1e-9, K * np.finfo(distances.dtype).eps) * max(most, 1e-12)  # larger than rounding errors
    return np.asarray(vectors[:, real] * np.sqrt(K), np.float64)


def principal_axes(points: NDArray[Any], n: int) -> Floats:
    """The leading axes [K, m] of points [K, d], with mean 0 and variance 1: equal to `coordinates` of their squared distances."""
    X = points - points.mean(0, dtype=np.float64)
    values, vectors = np.linalg.eigh(X.T @ X)
    largest = np.argsort(values)[::-1][: min(n, len(X) - 1)]
    real = largest[values[largest] > 1e-9 * max(float((X**2).sum(1).max(initial=0.0)), 1e-12)]
    return np.asarray(X @ vectors[:, real] * np.sqrt(len(X) / values[real]), np.float64)
