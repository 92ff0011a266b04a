"""Differences between methods: over seeds, over clients and over data sets.

Functions of arrays; higher scores are better. Which question each answers:

- `paired_difference` and `holm`: would another seed say the same? The runs of a seed are a pair, same data and first model.
- `bootstrap_interval`: how far do these clients' gains, under these models, determine their mean? It says nothing of seeds.
- `mcnemar` and `gain_interval`: is one client better off, judged by its own test samples?
- `average_ranks`, `friedman` and `critical_difference`: do methods differ over several data sets?
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats

CONFIDENCE = 0.95
RESAMPLES = 9_999  # of a bootstrap
BATCH = 20_000_000  # numbers of a bootstrap that are in memory at once


@dataclass(frozen=True)
class Difference:
    """A mean difference with its confidence interval and p value."""

    mean: float
    low: float  # nan where one pair gives no interval
    high: float
    p: float  # two-sided, of no difference; nan without an interval
    pairs: int

    @property
    def shown(self) -> bool:
        """Tell whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def paired_difference(scores: ArrayLike, reference: ArrayLike, confidence: float = CONFIDENCE) -> Difference:
    """Return the mean paired difference with its t interval.

    Positive where `scores` are higher; best as large as possible. One pair has no interval: low, high and p are nan.

    Parameters
    ----------
    scores, reference : array-like [S], of two methods, one entry per seed; entries of the same seed are a pair
    confidence : share of intervals that cover the true difference

    References
    ----------
    Student (1908), The probable error of a mean. Biometrika 6. Demsar (2006), Statistical comparisons of classifiers over
    multiple data sets. JMLR 7, on its assumptions.

    Examples
    --------
    >>> d = paired_difference([0.8, 0.9, 1.0], [0.5, 0.5, 0.5])
    >>> round(d.mean, 3), round(d.low, 3), round(d.high, 3), d.shown
    (0.4, 0.152, 0.648, True)
    """
    d = _paired(scores, reference)
    n, mean = len(d), float(d.mean())
    if n == 1:
        return Difference(mean, np.nan, np.nan, np.nan, 1)
    error = float(d.std(ddof=1) / np.sqrt(n))
    if error <= 1e-12 * max(1.0, abs(mean)):  # all differences are one number, up to rounding
        return Difference(mean, mean, mean, float(abs(mean) <= 1e-12), n)
    half = error * float(stats.t.ppf((1 + confidence) / 2, n - 1))
    return Difference(mean, mean - half, mean + half, float(2 * stats.t.sf(abs(mean) / error, n - 1)), n)


def _paired(scores: ArrayLike, reference: ArrayLike) -> Floats:
    one, other = np.asarray(scores, np.float64), np.asarray(reference, np.float64)
    if one.ndim != 1 or one.shape != other.shape or not len(one):
        raise InputError(f"scores and reference must be two lists of one length, a pair per seed; got {one.shape}, {other.shape}")
    return one - other


def holm(p: ArrayLike) -> Floats:
    """Adjust p values for several comparisons by Holm's method.

    Between 0 and 1. Rejecting every hypothesis whose adjusted p is below alpha has at most the chance alpha of any mistake.

    Parameters
    ----------
    p : array-like [m]; nan for a comparison that was not made, which stays nan and does not count

    Returns
    -------
    array [m], never below p

    References
    ----------
    Holm (1979), A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    given = np.asarray(p, np.float64)
    made = np.flatnonzero(~np.isnan(given))
    order = made[np.argsort(given[made], kind="stable")]
    adjusted = np.full(given.shape, np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(given[order] * np.arange(len(order), 0, -1)), 1.0)
    return adjusted


def bootstrap_interval(values: ArrayLike, rng: np.random.Generator, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a mean.

    Over clients it describes these clients under these models: another seed trains other models, which it does not know.

    Parameters
    ----------
    values : array-like [N], one per client; nan (a client without test samples) is left out
    rng : source of the resamples

    Returns
    -------
    (low, high); nan if fewer than two values are left

    References
    ----------
    Efron and Tibshirani (1993), An introduction to the bootstrap. Chapman & Hall.

    Examples
    --------
    >>> low, high = bootstrap_interval([0.0, 1.0] * 50, np.random.default_rng(0))
    >>> round(low, 1), round(high, 1)
    (0.4, 0.6)
    """
    x = np.asarray(values, np.float64)
    x = x[~np.isnan(x)]
    if len(x) < 2:
        return np.nan, np.nan
    how = {"n_resamples": RESAMPLES, "batch": max(1, BATCH // len(x)), "confidence_level": confidence, "method": "percentile"}
    found = stats.bootstrap((x,), np.mean, random_state=rng, **how).confidence_interval
    return float(found.low), float(found.high)


def mcnemar(won: ArrayLike, lost: ArrayLike) -> Floats:
    """Return exact McNemar p values of paired 0/1 outcomes.

    Between 0 and 1; small where two models do not have the same accuracy on a client.

    Parameters
    ----------
    won, lost : array-like [n], samples that only the first, or only the second, model has right; one entry per client

    Returns
    -------
    array [n], two-sided; 1 where both models have the same samples right

    References
    ----------
    McNemar (1947), Note on the sampling error of the difference between correlated proportions. Psychometrika 12.

    Examples
    --------
    >>> mcnemar([5, 0, 8], [0, 0, 2])
    array([0.0625  , 1.      , 0.109375])
    """
    b, c = _counts(won, lost)
    # Twice the smaller tail of Binomial(b + c, 1/2), as scipy.stats.binomtest has it for a half.
    p: Floats = np.minimum(1.0, 2 * stats.binom.cdf(np.minimum(b, c), b + c, 0.5))
    return p


def gain_interval(
    both: ArrayLike, won: ArrayLike, lost: ArrayLike, neither: ArrayLike, confidence: float = CONFIDENCE
) -> tuple[Floats, Floats]:
    """Bound each client's gain in accuracy by a paired score interval.

    (low [n], high [n]), between -1 and 1, around (won - lost) / samples. Newcombe's method 10 keeps its promise for few samples
    and for accuracies near 0 and 1, where a normal approximation does not. nan for a client without samples.

    Parameters
    ----------
    both, won, lost, neither : array-like [n], samples that both models, only the first, only the second, or none has right

    References
    ----------
    Newcombe (1998), Improved confidence intervals for the difference between binomial proportions based on paired data.
    Statistics in Medicine 17, method 10.

    Examples
    --------
    >>> low, high = gain_interval([36], [12], [2], [0])  # table III of the reference
    >>> low.round(4), high.round(4)
    (array([0.0569]), array([0.3404]))
    """
    a, b, c, d = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (both, won, lost, neither)))
    n = a + b + c + d
    with np.errstate(divide="ignore", invalid="ignore"):
        first, second, gain = (a + b) / n, (a + c) / n, (b - c) / n
        low1, high1 = _wilson(a + b, n, confidence)
        low2, high2 = _wilson(a + c, n, confidence)
        margins = (a + b) * (c + d) * (a + c) * (b + d)
        cross = a * d - b * c
        cross = np.where(cross > 0, np.maximum(cross - n / 2, 0.0), cross)  # continuity, of a positive correlation only
        phi = np.where(margins > 0, cross / np.sqrt(np.where(margins > 0, margins, 1.0)), 0.0)
        down, up = (first - low1, high2 - second), (high1 - first, second - low2)
        low, high = gain - _length(*down, phi), gain + _length(*up, phi)
    return np.maximum(low, -1.0), np.minimum(high, 1.0)


def _wilson(k: Floats, n: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Return Wilson's score intervals of k out of n."""
    z2 = float(stats.norm.ppf((1 + confidence) / 2)) ** 2
    centre, half = k + z2 / 2, np.sqrt(z2 * (k * (1 - k / n) + z2 / 4))
    return (centre - half) / (n + z2), (centre + half) / (n + z2)


def _length(x: Floats, y: Floats, phi: Floats) -> Floats:
    """Combine two one-sided widths whose estimates are correlated by phi."""
    return np.sqrt(np.maximum(x**2 - 2 * phi * x * y + y**2, 0.0))


def _counts(won: ArrayLike, lost: ArrayLike) -> tuple[Floats, Floats]:
    b, c = np.asarray(won, np.float64), np.asarray(lost, np.float64)
    if b.shape != c.shape or (b < 0).any() or (c < 0).any():
        raise InputError(f"won and lost must be counts, one of each per client; got shapes {b.shape} and {c.shape}")
    return b, c
