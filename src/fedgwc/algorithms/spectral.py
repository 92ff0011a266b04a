"""Spectral clustering in its parts, and coordinates from distances.

One set of eigenvectors serves every number of groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from fedgwc.algorithms.kmeans import few_means
from fedgwc.core.types import Floats, Ids

Assign = Literal["kmeans", "cluster_qr"]
FEW = 128  # up to so many clients, faster versions of k-means and Davies-Bouldin are used ...
FEW_GROUPS = 10  # ... k-means up to so many groups
DENSE_EIGEN = 400  # above this many clients only the few eigenvectors needed are computed


def embedding(W: NDArray[Any], n: int) -> Floats:
    """Return the leading eigenvectors [K, n] of the normalised affinities.

    Of D^-1/2 W D^-1/2 with a zero diagonal (Ng, Jordan and Weiss, 2001).
    """
    diagonal = np.diag(W).copy()
    np.fill_diagonal(W, 0.0)  # put back below: for many clients there is no room for a second W
    try:
        return _leading_eigenvectors(W, n)
    finally:
        np.fill_diagonal(W, diagonal)


def _leading_eigenvectors(A: NDArray[Any], n: int) -> Floats:
    degree = A.sum(1, dtype=np.float64)
    root = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1.0)), 0.0).astype(A.dtype)
    return largest_eigenpairs(A, n, lambda x: root * (A @ (root * x)), lambda: root[:, None] * A * root)[1]


def largest_eigenpairs(
    like: NDArray[Any], n: int, product: Callable[[NDArray[Any]], NDArray[Any]], full_matrix: Callable[[], NDArray[Any]]
) -> tuple[Floats, Floats]:
    """Return the largest eigenvalues [n] and eigenvectors [K, n].

    Largest first, of a symmetric matrix: by its `product` with a vector, or by the `whole` matrix if needed.

    `like` has its shape and type.
    """
    K = len(like)
    if K > DENSE_EIGEN:
        operator = LinearOperator((K, K), lambda x: product(x.reshape(-1)), dtype=like.dtype)
        start = np.cos(np.arange(K)).astype(like.dtype)  # fixed, so that the result is reproducible
        exact = 0.0 if like.dtype == np.float64 else 1e-5  # float32 has hardly more digits, and reaching them takes twice as long
        try:
            values, vectors = eigsh(operator, n, which="LA", v0=start, ncv=max(4 * n, 40), tol=exact)
            return np.asarray(values[::-1], np.float64), np.asarray(vectors[:, ::-1], np.float64)
        except ArpackNoConvergence:
            pass
    values, vectors = linalg.eigh(full_matrix(), subset_by_index=[K - n, K - 1])
    return np.asarray(values[::-1], np.float64), np.asarray(vectors[:, ::-1], np.float64)


def assign_labels(U: Floats, how: Assign, seed: int) -> Ids:
    """Cluster an embedding [K, n]: labels [K], numbered by first appearance."""
    if how == "kmeans":
        y = _kmeans(U / np.maximum(np.linalg.norm(U, axis=1, keepdims=True), 1e-300), seed)
    else:
        # Damle, Minden and Ying (2019): pivoted QR picks one representative client per group, and the rotation closest
        # to their coordinates turns every client's row into its membership.
        pivots = linalg.qr(U.T, mode="r", pivoting=True)[1][: U.shape[1]]
        y = np.abs(U @ linalg.polar(U[pivots].T)[0]).argmax(1)
    _, first, inverse = np.unique(y, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def _kmeans(X: Floats, seed: int) -> Ids:
    from sklearn.cluster import KMeans

    n = min(X.shape[1], len(np.unique(X.round(12), axis=0)))  # k-means warns when there are fewer points than means
    if len(X) <= FEW and n <= FEW_GROUPS:
        return few_means(X, n, seed)
    return np.asarray(KMeans(n, n_init=10, random_state=seed).fit_predict(X), np.int64)


def davies_bouldin(X: Floats, labels: Ids) -> float:
    """Compute the Davies-Bouldin score of groups numbered without gaps."""
    if labels.max() == 0:  # a single group: there is nothing to separate
        return float("inf")
    if len(X) <= FEW:
        return _davies_bouldin_of_few(X, labels)
    from sklearn.metrics import davies_bouldin_score

    return float(davies_bouldin_score(X, labels))


def _davies_bouldin_of_few(X: Floats, labels: Ids) -> float:
    """Compute the Davies-Bouldin score of few points.

    The same as scikit-learn's, without the milliseconds that it takes to check and copy.
    """
    member = labels == np.arange(labels.max() + 1)[:, None]  # [n, K]
    size = member.sum(1)
    centres = (member @ X) / size[:, None]
    spread = (member @ np.linalg.norm(X - centres[labels], axis=1)) / size
    apart = np.linalg.norm(centres[:, None] - centres, axis=2)
    if np.allclose(spread, 0) or np.allclose(apart, 0):
        return 0.0
    apart[apart == 0] = np.inf
    return float(((spread[:, None] + spread) / apart).max(1).mean())


def coordinates(distances: NDArray[Any], n: int) -> Floats:
    """Return the leading axes [K, m] of points from their squared distances.

    [K, K] (classical scaling), with mean 0 and variance 1.

    m is at most n: axes along which nobody differs are left out.
    """
    K = len(distances)
    n = min(n, K - 1)
    if n < 1:
        return np.zeros((K, 0))

    def product(x: NDArray[Any]) -> NDArray[Any]:
        y = -0.5 * (distances @ (x - x.mean()))
        return np.asarray(y - y.mean())

    def full_matrix() -> NDArray[Any]:
        rows = distances - distances.mean(0)
        return np.asarray(-0.5 * (rows - rows.mean(1, keepdims=True)))

    most = max(float(distances.max()), -float(distances.min()))
    if not most:
        return np.zeros((K, 0))  # ARPACK cannot start on a zero matrix
    values, vectors = largest_eigenpairs(distances, n, product, full_matrix)
    real = values > max(1e-9, K * np.finfo(distances.dtype).eps) * max(most, 1e-12)  # larger than rounding errors
    return np.asarray(vectors[:, real] * np.sqrt(K), np.float64)


def principal_axes(points: NDArray[Any], n: int) -> Floats:
    """Return the leading axes [K, m] of points [K, d].

    With mean 0 and variance 1: equal to `coordinates` of their squared distances.
    """
    X = points - points.mean(0, dtype=np.float64)
    values, vectors = np.linalg.eigh(X.T @ X)
    largest = np.argsort(values)[::-1][: min(n, len(X) - 1)]
    real = largest[values[largest] > 1e-9 * max(float((X**2).sum(1).max(initial=0.0)), 1e-12)]
    return np.asarray(X @ vectors[:, real] * np.sqrt(len(X) / values[real]), np.float64)
