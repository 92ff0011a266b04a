"""FedGWC's mathematics as pure functions on float64 arrays: weights, interactions, affinity, clusters.

n clients in a cohort, K clients in a cluster. Equation numbers are the paper's.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgwc.algorithms.fedgwc.perception import square, upv_distances
from fedgwc.algorithms.fedgwc.spectral import Assign, assign_labels, davies_bouldin, embedding
from fedgwc.core.arguments import counts, means, number, numbers, whole
from fedgwc.core.errors import InputError
from fedgwc.core.settings import convert
from fedgwc.core.types import Floats, Ids

Features = Literal["rows", "columns"]
Score = Literal["affinity", "embedding"]

FLAT = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-5}  # affinities that differ by less hold no structure, only rounding


def update_weights(gamma: ArrayLike, cohort: ArrayLike, rewards: ArrayLike, alpha: float | ArrayLike) -> Floats:
    """Eq. 2: the running mean of each client's rewards. gamma [K], cohort and rewards [n] -> [K].

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


def weight_interval(
    gamma: ArrayLike, gamma2: ArrayLike, visits: ArrayLike, alpha: float | None = None, z: float = 1.96
) -> tuple[Floats, Floats]:
    """A confidence interval (low [K], high [K]) for each client's expected reward mu_k around its weight gamma_k.

    gamma and gamma2 are running means of the rewards and of their squares, so gamma2 - gamma^2 estimates the variance of
    one reward without assuming that local steps are independent. A running mean over `visits` rewards has that variance
    divided by `visits` (step 1/n) or, with a constant step alpha, times alpha / (2 - alpha), the variance proposition. A
    client seen fewer than twice has no interval: (0, 1). Nor has any with alpha 1, which keeps the last reward alone.
    """
    given = {"gamma": gamma, "gamma2": gamma2, "visits": visits}
    g, g2, n = (np.asarray(numbers(a, name), np.float64) for name, a in given.items())
    if len({a.shape for a in (g, g2, n)} - {()}) > 1:
        raise InputError(f"gamma, gamma2 and visits must be of one length, got shapes {g.shape}, {g2.shape} and {n.shape}")
    means(g, "gamma")
    means(g2, "gamma2")
    counts(n, "visits")
    number(z, "z", "positive and finite", lambda x: 0 < x < np.inf)
    if alpha is not None and number(alpha, "alpha", "in (0, 1]", lambda x: 0 < x <= 1) == 1:
        shape = np.broadcast_shapes(g.shape, g2.shape, n.shape)
        return np.zeros(shape), np.ones(shape)
    if alpha is None:
        variance = np.maximum(g2 - g**2, 0.0) / np.maximum(n - 1, 1)
    else:
        # Both running means start at 0 and so are too small by this factor. And g2 - g^2 lacks the variance of g itself.
        full = np.maximum(1 - (1 - alpha) ** n, 1e-12)
        g, g2 = g / full, g2 / full
        variance = np.maximum(g2 - g**2, 0.0) * alpha / (2 - alpha) / (1 - alpha / (2 - alpha))
    half = z * np.sqrt(variance)
    unknown = n < 2
    return np.where(unknown, 0.0, np.clip(g - half, 0, 1)), np.where(unknown, 1.0, np.clip(g + half, 0, 1))


def update_interactions(
    P: ArrayLike, cohort: ArrayLike, rewards: ArrayLike, alpha: float | ArrayLike, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Eq. 3: row k of every sampled pair moves towards client k's reward. P [K, K], cohort and rewards [n] -> [K, K].

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


def move(means: NDArray[Any], at: Any, values: Floats, alpha: Floats) -> None:
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
    return ids.astype(np.int64), checked_rewards(omega)


def checked_rewards(omega: Floats) -> Floats:
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
    """Eq. 4: W_kj = exp(-beta |v_k - v_j|^2) over unbiased perception vectors (UPV). P [K, K] -> W [K, K], diagonal 1.

    The UPV of client k towards j is row k of P without the entries k and j. `features="columns"` takes columns instead of
    rows and `scaled` first brings P to [0, 1] by its extremes, both as in the authors' release.

    For more than `perception.LARGE` clients W is float32 and made block by block, so that memory must hold only P and W.

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


def fedgw_cluster(
    P: ArrayLike,
    beta: float,
    n_max: int = 5,
    *,
    features: Features = "rows",
    score: Score = "affinity",
    assign: Assign = "kmeans",
    scaled: bool = False,
    min_size: int = 1,
    below: float = 1.0,
    seed: int = 0,
) -> tuple[Ids, dict[int, float]]:
    """Algorithm 1: split K clients into the n = 2..n_max groups that Davies-Bouldin likes best, or not at all.

    P [K, K] -> (labels [K], {n: Davies-Bouldin}); all labels 0 means no split. A split needs a score of at most `below` and
    no group smaller than `min_size`. `score` says what Davies-Bouldin sees: rows of W ("affinity", the paper) or of the
    spectral embedding ("embedding", the release); `assign` how the embedding becomes labels. Clients whose affinities are
    equal up to rounding are never split.
    """
    n_max, min_size, seed = whole(n_max, "n_max", 2), whole(min_size, "min_size", 1), whole(seed, "seed", 0, 2**32 - 1)
    number(below, "below", "a number", lambda x: x == x)
    convert(score, Score, "score")
    convert(assign, Assign, "assign")
    W = affinity(P, beta, features=features, scaled=scaled)
    none = np.zeros(len(W), np.int64)
    n_max = min(n_max, len(W) - 1)
    if n_max < 2 or _is_flat(W):
        return none, {}
    U = embedding(W, n_max)
    labels = {n: assign_labels(U[:, :n], assign, seed) for n in range(2, n_max + 1)}
    scores = {n: davies_bouldin(W if score == "affinity" else U[:, :n], y) for n, y in labels.items()}
    good = [n for n, y in labels.items() if y.any() and scores[n] <= below and np.bincount(y).min() >= min_size]
    return labels[min(good, key=lambda n: scores[n])] if good else none, scores


def _is_flat(W: NDArray[Any]) -> bool:
    K = len(W)
    off = W.reshape(-1)[1:].reshape(K - 1, K + 1)[:, :-1]  # all but the diagonal, without a copy
    return bool(np.ptp(off) <= FLAT[W.dtype])
