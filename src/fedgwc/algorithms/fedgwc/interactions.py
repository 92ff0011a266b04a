"""Gaussian weights (Eq. 2), the interaction matrix (Eq. 3) and the affinities made of it (Eq. 4).

Pure functions on float64 arrays. n clients in a cohort, K clients in a cluster. The unbiased perception vector (UPV) of client k
towards j is row k of the interaction matrix without the entries k and j.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgwc.algorithms.perception import square, upv_distances
from fedgwc.core.arguments import check_means, number, numbers
from fedgwc.core.errors import InputError
from fedgwc.core.settings import convert
from fedgwc.core.types import Floats, Ids

Features = Literal["rows", "columns"]


def update_weights(gamma: ArrayLike, cohort: ArrayLike, rewards: ArrayLike, alpha: float | ArrayLike) -> Floats:
    """Move each sampled client's weight towards its reward (Eq. 2).

    gamma [K], cohort and rewards [n] -> [K].

    >>> update_weights([0.0, 0.0], cohort=[1], rewards=[1.0], alpha=0.1).tolist()
    [0.0, 0.1]
    """
    new = np.array(numbers(gamma, "gamma"), np.float64)
    if new.ndim != 1:
        raise InputError(f"gamma must be a vector, one weight per client, got shape {new.shape}")
    check_means(new, "gamma")
    ids, omega = _checked(cohort, rewards, len(new))
    move(new, ids, omega, _alpha(alpha, (len(ids),)))
    return new


def update_interactions(
    P: ArrayLike, cohort: ArrayLike, rewards: ArrayLike, alpha: float | ArrayLike, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Move sampled pairs' interactions, in row k towards client k's reward (Eq. 3).

    P [K, K], cohort and rewards [n] -> [K, K].
    alpha is a number in (0, 1] or an array [n, n] over the cohort's pairs. `out=P` writes in place, touching only n^2 entries.

    >>> update_interactions([[0.0, 0.0], [0.0, 0.0]], [0, 1], [1.0, 0.5], 0.5).tolist()
    [[0.5, 0.5], [0.25, 0.25]]
    """
    values = numbers(P, "P")
    if out is not None and (not isinstance(out, np.ndarray) or out.dtype.kind != "f" or out.shape != values.shape):
        raise InputError(f"out must be a floating-point array of the shape {values.shape} of P, got {out!r:.60}")
    matrix = out if out is not None and out is P else np.array(values, np.float64 if out is None else out.dtype)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"P must be square, one row and column per client, got shape {matrix.shape}")
    ids, omega = _checked(cohort, rewards, len(matrix))
    at = np.ix_(ids, ids)
    check_means(matrix[at] if matrix is P else matrix, "P")
    move(matrix, at, omega[:, None], _alpha(alpha, (len(ids), len(ids))))
    if out is not None and out is not matrix:
        out[...] = matrix
        return out
    return matrix


def move(means: NDArray[Any], at: Any, values: Floats, alpha: Floats | float) -> None:
    """Move the running means `at` towards `values` by `alpha`, in place."""
    means[at] = (1 - alpha) * means[at] + alpha * values


def _checked(cohort: ArrayLike, rewards: ArrayLike, n_clients: int) -> tuple[Ids, Floats]:
    """Check a cohort's client numbers and rewards, and return both."""
    ids, omega = numbers(cohort, "cohort"), np.asarray(numbers(rewards, "rewards"), np.float64)
    if ids.ndim != 1 or ids.shape != omega.shape:
        raise InputError(f"cohort and rewards must be vectors of one length, got shapes {ids.shape} and {omega.shape}")
    if ids.size and (ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= n_clients):
        raise InputError(f"cohort must hold client numbers in 0..{n_clients - 1}, got {ids.tolist()}")
    check_once(ids)
    return ids.astype(np.int64), check_rewards(omega)


def check_rewards(omega: Floats) -> Floats:
    if not ((omega >= 0) & (omega <= 1)).all():
        raise InputError(f"rewards must be in [0, 1], got {omega.tolist()}")
    return omega


def check_once(cohort: NDArray[Any]) -> None:
    if len(set(cohort.tolist())) < len(cohort):
        raise InputError(f"a client can be in a cohort once, got {cohort.tolist()}")


def _alpha(alpha: float | ArrayLike, shape: tuple[int, ...]) -> Floats:
    a = np.asarray(numbers(alpha, "alpha"), np.float64)
    if a.shape not in ((), shape) or not ((a > 0) & (a <= 1)).all():
        raise InputError(f"alpha must be a number in (0, 1] or an array of shape {shape} of such, got {alpha!r}")
    return a


def affinity(P: ArrayLike, beta: float, *, features: Features = "rows", scaled: bool = False) -> NDArray[Any]:
    """Compare perception vectors by an RBF kernel (Eq. 4).

    P [K, K] -> W [K, K], W_kj = exp(-beta |v_k - v_j|^2), diagonal 1.

    `features="columns"` takes columns of P instead of rows and `scaled` first brings P to [0, 1] by its extremes, both as in the
    authors' release. For more than `LARGE` clients W is float32 and made block by block, so that memory must hold only P and W.

    >>> P = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    >>> affinity(P, beta=1.0).round(3).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    beta = number(beta, "beta", "positive and finite, being the spread of the RBF kernel", lambda x: 0 < x < np.inf)
    convert(features, Features, "features")
    V = square(P)
    if scaled and np.ptp(V) > 0:
        beta = beta / float(np.ptp(V)) ** 2  # a shift of P changes no distance
    W = np.empty(V.shape, V.dtype)
    for k, j, squared in upv_distances(V.T if features == "columns" else V):
        W[k, j], W[j, k] = squared, squared.T
    np.multiply(W, -beta, out=W)
    np.exp(W, out=W)
    np.fill_diagonal(W, 1.0)
    return W
