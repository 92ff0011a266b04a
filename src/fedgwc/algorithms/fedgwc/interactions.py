"""Gaussian weights (Eq. 2), the interaction matrix (Eq. 3) and the affinities made of it (Eq. 4).

Pure functions on float64 arrays. n clients in a cohort, K clients in a cluster. The unbiased perception vector (UPV) of client k
towards j is row k of the interaction matrix without the entries k and j.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgwc.core.arguments import means, number, numbers
from fedgwc.core.errors import InputError
from fedgwc.core.settings import convert
from fedgwc.core.types import Floats, Ids

Features = Literal["rows", "columns"]
LARGE = 1024  # for more clients, matrices are float32 instead of float64, and are processed in blocks of this many rows


def update_weights(gamma: ArrayLike, cohort: ArrayLike, rewards: ArrayLike, alpha: float | ArrayLike) -> Floats:
    """Move each sampled client's weight towards its reward (Eq. 2): gamma [K], cohort and rewards [n] -> [K].

    >>> update_weights([0.0, 0.0], cohort=[1], rewards=[1.0], alpha=0.1).tolist()
    [0.0, 0.1]
    """
    new = np.array(numbers(gamma, "gamma"), np.float64)
    if new.ndim != 1:
        raise InputError(f"gamma must be a vector, one weight per client, got shape {new.shape}")
    means(new, "gamma")
    ids, omega = _checked(cohort, rewards, len(new))
    move(new, ids, omega, _alpha(alpha, (len(ids),)))
    return new


def update_interactions(
    P: ArrayLike, cohort: ArrayLike, rewards: ArrayLike, alpha: float | ArrayLike, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Move row k of every sampled pair towards client k's reward (Eq. 3): P [K, K], cohort and rewards [n] -> [K, K].

    alpha is a number in (0, 1] or an array [n, n] over the cohort's pairs. `out=P` writes in place, touching only n^2 entries.

    >>> update_interactions([[0.0, 0.0], [0.0, 0.0]], [0, 1], [1.0, 0.5], 0.5).tolist()
    [[0.5, 0.5], [0.25, 0.25]]
    """
    given = numbers(P, "P")
    if out is not None and (not isinstance(out, np.ndarray) or out.dtype.kind != "f" or out.shape != given.shape):
        raise InputError(f"out must be a floating-point array of the shape {given.shape} of P, got {out!r:.60}")
    matrix = out if out is not None and out is P else np.array(given, np.float64 if out is None else out.dtype)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"P must be square, one row and column per client, got shape {matrix.shape}")
    ids, omega = _checked(cohort, rewards, len(matrix))
    at = np.ix_(ids, ids)
    means(matrix[at] if matrix is P else matrix, "P")
    move(matrix, at, omega[:, None], _alpha(alpha, (len(ids), len(ids))))
    if out is not None and out is not matrix:
        out[...] = matrix
        return out
    return matrix


def move(means: NDArray[Any], at: Any, values: Floats, alpha: Floats | float) -> None:
    """Move the running means `at` towards `values` by `alpha`, in place."""
    means[at] = (1 - alpha) * means[at] + alpha * values


def _checked(cohort: ArrayLike, rewards: ArrayLike, n_clients: int) -> tuple[Ids, Floats]:
    """A cohort's client numbers and rewards, checked."""
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
    """Compare perception vectors by an RBF kernel (Eq. 4): P [K, K] -> W [K, K], W_kj = exp(-beta |v_k - v_j|^2), diagonal 1.

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


def upv_distances(V: NDArray[Any]) -> Iterator[tuple[slice, slice, NDArray[Any]]]:
    """Squared distances between the UPVs of all pairs, as (rows, columns, block) of the upper half; diagonal 0.

    One matrix product per block: the squared distance of whole rows minus the two entries that a pair leaves out.
    """
    own = np.diag(V)
    centre = V.mean(0, dtype=np.float64).astype(V.dtype)  # subtracted, so that no digits cancel
    cut = blocks(len(V))
    squares = np.concatenate([((V[k] - centre) ** 2).sum(1) for k in cut])
    for i, k in enumerate(cut):
        rows = V[k] - centre
        for j in cut[i:]:
            d = squares[k, None] + squares[j]
            d -= 2 * (rows @ (V[j] - centre).T)
            d -= (own[k, None] - V[j, k].T) ** 2  # entry k: (P_kk - P_jk)^2
            d -= (V[k, j] - own[j]) ** 2  # entry j: (P_kj - P_jj)^2
            np.maximum(d, 0.0, out=d)
            if j == k:
                d = (d + d.T) / 2
                np.fill_diagonal(d, 0.0)
            yield k, j, d


def blocks(K: int) -> list[slice]:
    return [slice(i, min(i + LARGE, K)) for i in range(0, K, LARGE)]


def square(P: ArrayLike) -> NDArray[Any]:
    """A matrix over pairs, checked, in the type for its size."""
    V = numbers(P, "P")
    if V.ndim != 2 or V.shape[0] != V.shape[1] or not len(V):
        raise InputError(f"P must be square, one row and column per client, got shape {V.shape}")
    V = V.astype(np.float64 if len(V) <= LARGE else np.float32, copy=False)
    if not np.isfinite([V.min(), V.max()]).all():
        raise InputError("P holds NaN or infinite values; an interaction matrix has entries in [0, 1]")
    return V
