"""FedGWC's mathematics as pure functions on float64 arrays: losses, rewards, interactions, affinity, clusters.

n clients in a cohort, S local steps, K clients in a cluster. Equation numbers are the paper's.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from fedgwc.core import Floats, Ids
from fedgwc.errors import InputError
from fedgwc.spectral import Assign, assign_labels, davies_bouldin, embedding

Features = Literal["rows", "columns"]
Score = Literal["affinity", "embedding"]

HUGE = 1e100  # losses beyond are taken for this, so that their squares are numbers
LARGE = 4096  # clients; up to so many the affinity is computed in float64, above in float32
BLOCK = 2048  # rows of a large affinity made at once
FLAT = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-5}  # affinities that differ by less hold no structure, only rounding


def gaussian_rewards(
    losses: ArrayLike,
    *,
    sizes: ArrayLike | None = None,
    normalise: bool = False,
    samples: int = 0,
    rng: np.random.Generator | None = None,
) -> Floats:
    """How close each client's losses are to its cohort's, in (0, 1]: Eq. 1 averaged over the steps a client made.

    losses [n, S] -> [n]; NaN marks a step that a client did not make, and a step made by fewer than three clients is left
    out. Losses that are equal up to rounding give reward 1. Fewer than 3 clients are refused: two losses always lie the
    same number of deviations from their mean, so their rewards, exp(-1/4) each, say nothing.

    The keywords are the authors' released variants: `sizes` [n] weights mean and variance by sample counts, `normalise`
    divides by the sum over the cohort, `samples` > 0 takes the statistics from so many normal draws around them.

    >>> gaussian_rewards([[1.0], [2.0], [3.0]]).round(4).tolist()
    [0.6065, 1.0, 0.6065]
    """
    x, mean, variance = _cohort_statistics(losses, sizes)
    if samples:
        drawn = (rng or np.random.default_rng(0)).normal(mean, np.sqrt(variance), (samples, len(mean)))
        mean, variance = drawn.mean(0), drawn.var(0)
    omega = rewards_around(x, mean, variance)
    return omega / omega.sum() if normalise else omega


def gaussian_sides(losses: ArrayLike, *, sizes: ArrayLike | None = None) -> Floats:
    """On which side of its cohort's mean each client's losses lie, in (0, 1): 1/2 on it, towards 1 above, towards 0 below.

    The reward of Eq. 1 is a Gaussian's density at a loss and forgets the sign of its deviation. This is the same Gaussian's
    distribution function, averaged over the steps a client made, with the same conventions. losses [n, S] -> [n].

    >>> gaussian_sides([[1.0], [2.0], [3.0]]).round(4).tolist()
    [0.1587, 0.5, 0.8413]
    """
    x, mean, variance = _cohort_statistics(losses, sizes)
    flat = variance <= 0
    z = np.where(flat, 0.0, (x - mean) / np.sqrt(np.where(flat, 1.0, variance)))
    made = np.isfinite(x)
    side: Floats = np.where(made, ndtr(z), 0.0).sum(1) / made.sum(1)
    return side


def loss_variances(losses: ArrayLike) -> tuple[float, float]:
    """(between, within): how much losses [n, S] vary between clients, and between the steps of one client.

    What a step's number says is taken out first (losses fall while a client trains). If all clients drew their data from one
    source, a client's mean would only be a mean of its batches, and `between`, which counts a client's mean once per step, would
    estimate the same variance as `within`. Their ratio is the F of an analysis of variance: 1 for clients that differ no more
    than the batches of one of them do.

    >>> loss_variances([[1.0, 3.0], [3.0, 1.0], [2.0, 2.0]])
    (0.0, 2.0)
    >>> loss_variances([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    (2.0, 0.0)
    """
    x = _losses(np.asarray(losses))
    x = x[:, np.isfinite(x).sum(0) >= 3]
    made = np.isfinite(x)
    r = np.where(made, x - np.nanmean(x, 0), 0.0)
    steps, n = made.sum(1), len(x)
    mean = r.sum(1) / steps
    between = float((steps * mean**2).sum() / (n - 1))
    freedom = (steps - 1).sum() * (n - 1) / n
    within = float((np.where(made, r - mean[:, None], 0.0) ** 2).sum() / freedom) if freedom > 0 else 0.0
    return between, within


def _cohort_statistics(losses: ArrayLike, sizes: ArrayLike | None) -> tuple[Floats, Floats, Floats]:
    """Losses [n, S] of steps made by at least three clients, with mean and variance [S]; variance 0: equal up to rounding."""
    given = np.asarray(losses)
    rounding = np.finfo(given.dtype if given.dtype.kind == "f" else np.float64).eps
    x = _losses(given)
    x = x[:, np.isfinite(x).sum(0) >= 3]
    made = np.isfinite(x)
    mean, variance = _statistics(np.where(made, x, 0.0), made, sizes)
    scale = np.abs(np.where(made, x, 0.0)).max(0)
    return x, mean, np.where(variance <= (4 * rounding * scale) ** 2, 0.0, variance)


def rewards_around(losses: Floats, mean: Floats, variance: Floats) -> Floats:
    """Eq. 1 for given statistics of each step [S]: losses [n, S] -> [n], averaged over the steps that a client made.

    A variance of 0 says that the cohort's losses are equal up to rounding: reward 1.
    """
    made, flat = np.isfinite(losses), variance <= 0
    with np.errstate(invalid="ignore"):
        reward = np.exp(-((losses - mean) ** 2) / (2 * np.where(flat, 1.0, variance)))
    reward = np.where(flat, 1.0, np.maximum(reward, np.finfo(np.float64).tiny))  # far outliers underflow; 0 is not a reward
    omega: Floats = np.where(made, reward, 0.0).sum(1) / made.sum(1)
    return omega


def _losses(given: NDArray[np.generic]) -> Floats:
    if given.ndim != 2 or given.shape[1] < 1:
        raise InputError(f"losses must be [clients, steps] with at least one step, got shape {given.shape}")
    if len(given) < 3:
        raise InputError(f"rewards need at least 3 clients, got {len(given)}: two losses carry no information about each other")
    x = given.astype(np.float64)
    if np.isinf(x).any():
        raise InputError("losses must be finite (NaN marks a step that was not made); drop clients whose loss is infinite")
    if np.isnan(x).all(1).any() or not (np.isfinite(x).sum(0) >= 3).any():
        raise InputError("every client needs at least one loss, and at least one step must have been made by 3 clients")
    return np.clip(x, -HUGE, HUGE)


def _statistics(x: Floats, made: NDArray[np.bool_], sizes: ArrayLike | None) -> tuple[Floats, Floats]:
    """Mean and variance per step [S]: plain with n - 1 as in the paper, or weighted by sample counts as released."""
    if sizes is None:
        count = made.sum(0)
        mean = x.sum(0) / count
        return mean, (np.where(made, x - mean, 0.0) ** 2).sum(0) / (count - 1)
    w = np.asarray(sizes, np.float64)
    if w.shape != (len(x),) or not (np.isfinite(w).all() and (w > 0).all()):
        raise InputError(f"sizes must be {len(x)} positive sample counts, got {sizes!r}")
    share = np.where(made, w[:, None], 0.0)
    share = share / share.sum(0)
    mean = (share * x).sum(0)
    return mean, (share * (x - mean) ** 2).sum(0) + 1e-16


def update_weights(gamma: ArrayLike, cohort: ArrayLike, rewards: ArrayLike, alpha: float | ArrayLike) -> Floats:
    """Eq. 2: the running mean of each client's rewards. gamma [K], cohort and rewards [n] -> [K].

    >>> update_weights([0.0, 0.0], cohort=[1], rewards=[1.0], alpha=0.1).tolist()
    [0.0, 0.1]
    """
    new = np.array(gamma, np.float64)
    if new.ndim != 1:
        raise InputError(f"gamma must be a vector, one weight per client, got shape {new.shape}")
    ids, omega = _cohort(cohort, rewards, len(new))
    a = _alpha(alpha, (len(ids),))
    new[ids] = (1 - a) * new[ids] + a * omega
    return new


def weight_interval(
    gamma: ArrayLike, gamma2: ArrayLike, visits: ArrayLike, alpha: float | None = None, z: float = 1.96
) -> tuple[Floats, Floats]:
    """A confidence interval (low [K], high [K]) for each client's expected reward mu_k around its weight gamma_k.

    gamma and gamma2 are running means of the rewards and of their squares, so gamma2 - gamma^2 estimates the variance of
    one reward without assuming that local steps are independent. A running mean over `visits` rewards has that variance
    divided by `visits` (step 1/n) or, with a constant step alpha, times alpha / (2 - alpha), the variance proposition. A
    client seen fewer than twice has no interval: (0, 1).
    """
    g, g2, n = (np.asarray(a, np.float64) for a in (gamma, gamma2, visits))
    if alpha is None:
        variance = np.maximum(g2 - g**2, 0.0) / np.maximum(n - 1, 1)
    else:
        # Both running means start at 0 and are small by this factor; the last reward alone weighs alpha.
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
    matrix = out if out is not None and out is P else np.array(P, np.float64 if out is None else out.dtype)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"P must be square, one row and column per client, got shape {matrix.shape}")
    ids, omega = _cohort(cohort, rewards, len(matrix))
    a = _alpha(alpha, (len(ids), len(ids)))
    pairs = np.ix_(ids, ids)
    matrix[pairs] = (1 - a) * matrix[pairs] + a * omega[:, None]
    if out is not None and out is not matrix:
        out[...] = matrix
        return out
    return matrix


def _cohort(cohort: ArrayLike, rewards: ArrayLike, n_clients: int) -> tuple[Ids, Floats]:
    ids, omega = np.asarray(cohort), np.asarray(rewards, np.float64)
    if ids.ndim != 1 or ids.shape != omega.shape:
        raise InputError(f"cohort and rewards must be vectors of one length, got shapes {ids.shape} and {omega.shape}")
    if ids.size and (not np.issubdtype(ids.dtype, np.integer) or ids.min() < 0 or ids.max() >= n_clients):
        raise InputError(f"cohort must hold client numbers in 0..{n_clients - 1}, got {ids.tolist()}")
    if len(np.unique(ids)) < len(ids):
        raise InputError(f"a client can be in a cohort once, got {ids.tolist()}")
    if not ((omega >= 0) & (omega <= 1)).all():
        raise InputError(f"rewards must be in [0, 1], got {omega.tolist()}")
    return ids.astype(np.int64), omega


def _alpha(alpha: float | ArrayLike, shape: tuple[int, ...]) -> Floats:
    a = np.asarray(alpha, np.float64)
    if a.shape not in ((), shape) or not ((a > 0) & (a <= 1)).all():
        raise InputError(f"alpha must be a number in (0, 1] or an array of shape {shape} of such, got {alpha!r}")
    return a


def affinity(
    P: ArrayLike, beta: float, *, features: Features = "rows", scaled: bool = False, sides: ArrayLike | None = None
) -> NDArray[Any]:
    """Eq. 4: W_kj = exp(-beta |v_k - v_j|^2) over unbiased perception vectors (UPV). P [K, K] -> W [K, K], diagonal 1.

    The UPV of client k towards j is row k of P without the entries k and j. All pairs come from one matrix product: the
    squared distance of whole rows less the two entries that a pair leaves out. `features="columns"` takes columns instead
    of rows and `scaled` first brings P to [0, 1] by its extremes, both as in the authors' release. `sides` [K, K], kept as P is
    but of `gaussian_sides`, lengthens the vectors: squared distances of both add up.

    Of more than `LARGE` clients W is float32, made block by block, so that P and W are all that memory must hold.

    >>> P = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    >>> affinity(P, beta=1.0).round(3).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    if not (np.isfinite(beta) and beta > 0):
        raise InputError(f"beta must be positive and finite, got {beta}; it is the spread of the RBF kernel")
    views = [_square(P)]
    if scaled and np.ptp(views[0]) > 0:
        beta = beta / float(np.ptp(views[0])) ** 2  # distances feel only the scale
    if sides is not None:
        views.append(_square(sides))
        if views[1].shape != views[0].shape:
            raise InputError(f"sides must have the shape of P, {views[0].shape}, got {views[1].shape}")
    views = [V.T if features == "columns" else V for V in views]
    centres = [V.mean(0, dtype=np.float64).astype(V.dtype) for V in views]
    K = len(views[0])
    W = np.empty_like(views[0], order="C")
    blocks = [slice(i, i + BLOCK) for i in range(0, K, BLOCK)] if K > LARGE else [slice(0, K)]
    for i, k in enumerate(blocks):
        for j in blocks[i:]:
            w = np.exp(-beta * sum(_upv_distances(V, centre, k, j) for V, centre in zip(views, centres, strict=True)))
            if j == k:
                W[k, k] = (w + w.T) / 2
            else:
                W[k, j], W[j, k] = w, w.T
    np.fill_diagonal(W, 1.0)
    return W


def _upv_distances(V: NDArray[Any], centre: NDArray[Any], k: slice, j: slice) -> NDArray[Any]:
    """Squared distances between the UPVs of the clients `k` and `j`: of whole rows, less the two entries left out."""
    own = np.diag(V)
    squared = _squared_distances(V[k] - centre, V[j] - centre)
    squared -= (own[k, None] - V[j, k].T) ** 2  # entry k: (P_kk - P_jk)^2
    squared -= (V[k, j] - own[j]) ** 2  # entry j: (P_kj - P_jj)^2
    np.maximum(squared, 0.0, out=squared)
    return squared


def _square(P: ArrayLike) -> NDArray[Any]:
    V = np.asarray(P)
    if V.ndim != 2 or V.shape[0] != V.shape[1] or not len(V):
        raise InputError(f"P must be square, one row and column per client, got shape {V.shape}")
    V = V.astype(np.float64 if len(V) <= LARGE else np.float32, copy=False)
    if not np.isfinite([V.min(), V.max()]).all():
        raise InputError("P holds NaN or infinite values; an interaction matrix has entries in [0, 1]")
    return V


def _squared_distances(A: NDArray[Any], B: NDArray[Any]) -> NDArray[Any]:
    """[a, b] between rows, which come centred: that keeps the difference of large equal numbers from losing digits."""
    squared: NDArray[Any] = (A**2).sum(1)[:, None] + (B**2).sum(1) - 2 * (A @ B.T)
    return squared


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
    if n_max < 2 or min_size < 1:
        raise InputError(f"n_max must be at least 2 and min_size at least 1, got {n_max} and {min_size}")
    found = groupings(P, beta, n_max, features=features, score=score, assign=assign, scaled=scaled, seed=seed)
    best = best_grouping(found, below, min_size)
    labels = np.zeros(len(np.asarray(P)), np.int64) if best is None else best
    return labels, {n: score for n, (_, score) in found.items()}


def best_grouping(found: dict[int, tuple[Ids, float]], below: float, min_size: int) -> Ids | None:
    """Of several groupings the one with the lowest Davies-Bouldin score, at most `below`, without a group that is too small."""
    good = [n for n, (y, score) in found.items() if y.any() and score <= below and np.bincount(y).min() >= min_size]
    return found[min(good, key=lambda n: found[n][1])][0] if good else None


def groupings(
    P: ArrayLike,
    beta: float,
    n_max: int,
    *,
    features: Features = "rows",
    score: Score = "affinity",
    assign: Assign = "kmeans",
    scaled: bool = False,
    sides: ArrayLike | None = None,
    seed: int = 0,
) -> dict[int, tuple[Ids, float]]:
    """{n: (labels [K], Davies-Bouldin)} for n = 2..n_max; empty if there are too few clients or nothing tells them apart."""
    W = affinity(P, beta, features=features, scaled=scaled, sides=sides)
    n_max = min(n_max, len(W) - 1)
    if n_max < 2 or _is_flat(W):
        return {}
    U = embedding(W, n_max)
    labels = {n: assign_labels(U[:, :n], assign, seed) for n in range(2, n_max + 1)}
    return {n: (y, davies_bouldin(W if score == "affinity" else U[:, :n], y)) for n, y in labels.items()}


def _is_flat(W: NDArray[Any]) -> bool:
    K = len(W)
    off = W.reshape(-1)[1:].reshape(K - 1, K + 1)[:, :-1]  # all but the diagonal, without a copy
    return bool(np.ptp(off) <= FLAT[W.dtype])
