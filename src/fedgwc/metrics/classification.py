"""Metrics of models on the clients' own test sets.

Every function takes `Scores` and answers per client; `summary` averages over clients. A client without test samples
has the answer nan and is left out of averages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats, Scores
from fedgwc.metrics.inputs import class_counts


def accuracy(scores: Scores) -> Floats:
    """Return the share of correct test samples per client.

    Between 0 and 1, best 1.

    Parameters
    ----------
    scores : Scores of n clients and C classes

    Returns
    -------
    array [n]; nan for a client without test samples

    Examples
    --------
    >>> scores = Scores(np.array([7]), np.array([0.4]), correct=np.array([[6.0, 1.0]]), total=np.array([[8.0, 2.0]]))
    >>> accuracy(scores)
    array([0.7])
    """
    return _ratio(scores.correct.sum(1), scores.total.sum(1))


def balanced_accuracy(scores: Scores) -> Floats:
    """Average the recalls of the classes in each test set.

    Every class counts the same.

    Between 0 and 1, best 1. The paper reports this one, averaged over clients.

    Parameters
    ----------
    scores : Scores of n clients and C classes

    Returns
    -------
    array [n]; nan for a client without test samples

    References
    ----------
    Brodersen et al. (2010), The balanced accuracy and its posterior distribution. ICPR.

    Examples
    --------
    >>> scores = Scores(np.array([7]), np.array([0.4]), correct=np.array([[6.0, 1.0]]), total=np.array([[8.0, 2.0]]))
    >>> balanced_accuracy(scores)
    array([0.625])
    """
    return _weighted_recall(scores, np.ones_like(scores.total))


def weighted_accuracy(scores: Scores, train_counts: ArrayLike) -> Floats:
    """Average each client's recalls, weighted by its training classes.

    A class's weight is its share of the client's *training* set.

    Between 0 and 1, best 1. Only classes in the test set count, and their weights are rescaled to sum to 1. If none of the
    classes that a client trained on is in its test set, its classes weigh the same, as in `balanced_accuracy`: this is the
    limit of adding one vanishing count to every class.

    Parameters
    ----------
    scores : Scores of n clients and C classes
    train_counts : array-like [n, C], training samples per class, in the order of the rows of `scores`

    Returns
    -------
    array [n]; nan for a client without test samples

    Examples
    --------
    >>> scores = Scores(np.array([7]), np.array([0.4]), correct=np.array([[6.0, 1.0]]), total=np.array([[8.0, 2.0]]))
    >>> weighted_accuracy(scores, [[10, 30]])
    array([0.5625])
    """
    weights = class_counts(train_counts, empty_rows=True)
    if weights.shape != scores.total.shape:
        raise InputError(
            f"train_counts must have the shape of the scores, {scores.total.shape}, got {weights.shape}; "
            "give the rows of the clients that were scored, in the same order"
        )
    seen = (weights * (scores.total > 0)).sum(1, keepdims=True) > 0  # [n, 1]
    return _weighted_recall(scores, np.where(seen, weights, 1.0))


def _weighted_recall(scores: Scores, weights: Floats) -> Floats:
    """Average recalls under weights [n, C]: [n].

    Weights are rescaled over the classes in each client's test set.
    """
    present = scores.total > 0
    recall = np.where(present, _ratio(scores.correct, scores.total), 0.0)
    weights = weights * present
    return _ratio((weights * recall).sum(1), weights.sum(1))


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Divide part by whole, with nan where whole is 0."""
    out: Floats = np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)
    return out


def mean_over(values: Floats, weights: Floats) -> float:
    """Average over the clients with a weight.

    A nan among these (a model that diverged) stays visible.
    """
    kept = weights > 0
    return float(np.average(values[kept], weights=weights[kept])) if kept.any() else float("nan")
