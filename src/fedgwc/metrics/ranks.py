"""Ranks of methods over several data sets."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats

CONFIDENCE = 0.95
FEWEST_METHODS, FEWEST_SETS = 3, 2  # of which Friedman's test can say anything


def average_ranks(scores: ArrayLike) -> Floats:
    """Rank methods within each data set and average over data sets.

    Between 1 and M, best 1: first in every data set. Equal scores share the mean of their ranks.

    Parameters
    ----------
    scores : array-like [D, M], of M methods on D data sets; higher is better

    Returns
    -------
    array [M]

    References
    ----------
    Demsar (2006), Statistical comparisons of classifiers over multiple data sets. JMLR 7.

    Examples
    --------
    >>> average_ranks([[0.9, 0.8, 0.7], [0.9, 0.6, 0.6]])
    array([1.  , 2.25, 2.75])
    """
    ranks: Floats = stats.rankdata(-_table(scores), axis=1).mean(0)
    return ranks


def friedman(scores: ArrayLike) -> float:
    """Return Friedman's p value of no difference between methods.

    Between 0 and 1. 1 where all methods tie on all data sets.

    Parameters
    ----------
    scores : array-like [D, M], of at least 3 methods on at least 2 data sets

    References
    ----------
    Friedman (1937), The use of ranks to avoid the assumption of normality implicit in the analysis of variance. JASA 32.

    Examples
    --------
    >>> round(friedman([[3, 2, 1]] * 4), 4)
    0.0183
    """
    table = _table(scores)
    if table.shape[0] < FEWEST_SETS or table.shape[1] < FEWEST_METHODS:
        raise InputError(
            f"Friedman's test needs at least {FEWEST_METHODS} methods on {FEWEST_SETS} data sets, "
            f"got {table.shape[1]} on {table.shape[0]}"
        )
    if (table == table[:, :1]).all():
        return 1.0
    return float(stats.friedmanchisquare(*table.T).pvalue)


def critical_difference(n_methods: int, n_sets: int, confidence: float = CONFIDENCE) -> float:
    """Return Nemenyi's critical difference of average ranks.

    Positive. Two methods whose average ranks are less apart are not shown to differ, all pairs taken together.

    Parameters
    ----------
    n_methods : at least 2
    n_sets : data sets, at least 1

    References
    ----------
    Nemenyi (1963), Distribution-free multiple comparisons. PhD thesis, Princeton. Demsar (2006), JMLR 7, table 5.

    Examples
    --------
    >>> round(critical_difference(4, 14), 3)
    1.254
    """
    if n_methods < 2 or n_sets < 1:
        raise InputError(f"a critical difference needs at least 2 methods and 1 data set, got {n_methods} and {n_sets}")
    q = float(stats.studentized_range.ppf(confidence, n_methods, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_sets)))


def cliques(ranks: ArrayLike, difference: float) -> list[tuple[float, float]]:
    """List the longest spans of ranks that are no critical difference apart.

    As (best, worst) rank, from the best on; what such a span joins is not shown to differ.

    >>> cliques([1.0, 1.5, 3.0, 3.2], 1.0)
    [(1.0, 1.5), (3.0, 3.2)]
    """
    r = np.sort(np.asarray(ranks, np.float64))
    ends = [float(r[r < low + difference][-1]) for low in r]
    spans = [(float(low), high) for low, high in zip(r, ends, strict=True) if high > low]
    return [span for i, span in enumerate(spans) if all(span[1] > other[1] for other in spans[:i])]


def _table(scores: ArrayLike) -> Floats:
    table = np.asarray(scores, np.float64)
    if table.ndim != 2 or not table.size or np.isnan(table).any():
        raise InputError(f"scores must be a full table [data sets, methods] of numbers, got shape {table.shape}")
    return table
