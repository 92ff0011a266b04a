"""Readings of a cohort's losses.

How near the mean clients lie, on which side of it, and how steady they are.

n clients in a cohort, S local steps; pure functions on float64 arrays. Equation numbers are the paper's.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from fedgwc.algorithms.fedgwc.rewards import rewards_of
from fedgwc.algorithms.losses import TINY, LossStatistics
from fedgwc.core.arguments import numbers
from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats

BEYOND = 5  # values farther from the median than this many median deviations are cut to that distance


def gaussian_sides(losses: ArrayLike, *, sizes: ArrayLike | None = None) -> Floats:
    """Return the side of the cohort's mean of each client's losses.

    In (0, 1): 1/2 on the mean, towards 1 above, towards 0 below.

    The reward of Eq. 1 is a Gaussian's density at a loss and forgets the sign of its deviation. This is the same Gaussian's
    distribution function, averaged over the steps a client made, with the same conventions. losses [n, S] -> [n].

    >>> gaussian_sides([[1.0], [2.0], [3.0]]).round(4).tolist()
    [0.1587, 0.5, 0.8413]
    """
    return _cohort(losses, sizes).sides()


def gaussian_spreads(losses: ArrayLike) -> Floats:
    """Compare each client's variation between steps with its cohort's.

    In (0, 1): 1/2 as usual, towards 1 more.

    Each step's mean over the cohort is subtracted first (losses fall while a client trains). Then the logarithm of the variance
    between a client's own steps is compared as `gaussian_sides` compares losses. If a client's variance is unknown, because it
    made fewer than two steps or they are equal up to rounding, it gets 1/2. losses [n, S] -> [n].

    >>> gaussian_spreads([[1, -1], [-1, 1], [10, -10], [-10, 10], [100, -100], [-100, 100]]).round(2).tolist()
    [0.13, 0.13, 0.5, 0.5, 0.87, 0.87]
    """
    return _cohort(losses).spreads()


def loss_variances(losses: ArrayLike) -> tuple[float, float]:
    """Return the variances of losses [n, S] between and within clients.

    Between clients, and between the steps of one client.

    Each step's mean is subtracted first (losses fall while a client trains). If all clients drew their data from one
    source, a client's mean would only be a mean of its batches, and `between`, which counts a client's mean once per step, would
    estimate the same variance as `within`. Their ratio is the F of an analysis of variance: 1 for clients that differ no more
    than the batches of one of them do.

    >>> loss_variances([[1.0, 3.0], [3.0, 1.0], [2.0, 2.0]])
    (0.0, 2.0)
    >>> loss_variances([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    (2.0, 0.0)
    """
    between, within = _cohort(losses).variances()
    return float(between), float(within)


def first_losses(losses: ArrayLike) -> tuple[float, float]:
    """Return mean losses of the first and the second local step.

    Of the clients that made both; (0, 0) if nobody did. losses [n, S].

    The first batch meets the model that was sent, the second one the same model after one step of the client's own training. If
    clients can use the shared model, one step changes little. If each has data of its own kind, one step takes most of the loss
    away, and the next average brings it back: clients drift. Later steps may meet the first one's samples again and fall for
    that reason.

    >>> first_losses([[4.0, 1.0, 0.1], [2.0, 1.0, 0.1], [3.0, 1.0, 0.1]])
    (3.0, 1.0)
    """
    first, second = _cohort(losses).first_losses()
    return float(first), float(second)


class Readings:
    """All readings of one cohort, or of equally large ones at once [..., n, S]; what they have in common is computed once."""

    def __init__(self, losses: ArrayLike, sizes: ArrayLike | None = None) -> None:
        s = self.statistics = LossStatistics.of(np.asarray(losses), sizes)
        self.x, self.made, self.whole, self.steps, self.largest, self.apart = (
            s.losses, s.made, s.complete, s.steps, s.largest, s.apart
        )  # fmt: skip
        n, S = self.x.shape[-2:]
        self.total = n * S if self.whole else self.made.sum((-2, -1))  # losses in all [...]
        self.mean, self.variance, self._or_zero = s.mean, s.variance, s.or_zero

    def rewards(self) -> Floats:
        return rewards_of(self.statistics)

    def sides(self) -> Floats:
        mean, variance = self.mean[..., None, :], self.variance[..., None, :]
        flat = variance <= 0
        z = np.where(flat, 0.0, (self.x - mean) / np.sqrt(np.where(flat, 1.0, variance)))
        side: Floats = self._or_zero(ndtr(z)).sum(-1) / self.steps
        return side

    def spreads(self) -> Floats:
        variance = self._own_steps[1] / np.maximum(self.steps - 1, 1)
        known = variance > (1e-12 * self.largest.max(-1, keepdims=True)) ** 2
        every = bool(known.all())
        n = known.shape[-1] if every else np.maximum(known.sum(-1, keepdims=True), 2)
        log = np.log(variance if every else np.where(known, variance, 1.0))
        log -= log.sum(-1, keepdims=True) / n
        if not every:  # unknown variances, and all if fewer than three are known, count as usual
            log = np.where(known & (n >= 3), log, 0.0)
        deviation = np.sqrt((log**2).sum(-1, keepdims=True) / (n - 1))
        spread: Floats = ndtr(log / np.where(deviation > 1e-9, deviation, np.inf))
        return spread

    def variances(self) -> tuple[Floats, Floats]:
        own, squares = self._own_steps
        n = own.shape[-1]
        between = (self.steps * own**2).sum(-1) / (n - 1)
        freedom = (self.total - n) * (n - 1) / n
        return between, squares.sum(-1) / np.maximum(freedom, TINY)  # with one step each the squares are 0

    def first_losses(self) -> tuple[Floats, Floats]:
        if self.x.shape[-1] < 2:
            nobody = np.zeros(self.x.shape[:-2])
            return nobody, nobody
        two, clients = self.x[..., :2], self.x.shape[-2]
        if not self.whole:
            both = self.made[..., :2].all(-1, keepdims=True)  # [..., n, 1]
            two, clients = np.where(both, two, 0.0), np.maximum(both.sum(-2), 1)
        two = two.sum(-2) / clients
        return two[..., 0], two[..., 1]

    def drift(self, times: float) -> NDArray[np.bool_]:
        """Tell whether half of the clients drift [...].

        Their first loss is at least `times` the second. Clients for whom the reverse holds are subtracted, because small losses
        vary that much from batch to batch in either direction.
        """
        if self.x.shape[-1] < 2 or np.isinf(times):
            return np.zeros(self.x.shape[:-2], bool)
        first, second, both = self.x[..., 0], self.x[..., 1], self.made[..., :2].all(-1)
        more = (both & (first >= times * second) & (first > 0)).sum(-1)
        less = (both & (second >= times * first) & (second > 0)).sum(-1)
        return np.asarray(2 * (more - less) >= np.maximum(both.sum(-1), 1))

    def levels(self) -> Floats:
        """Logarithms of the first losses [..., n], bounded; NaN for clients without a first step, or if fewer than 3 have one."""
        first, made = self.x[..., 0], self.made[..., 0]
        log = np.log(np.maximum(first if self.whole else np.where(made, first, 1.0), TINY))
        if made.all():
            return bounded(log)
        rows = zip(log.reshape(-1, log.shape[-1]), made.reshape(-1, log.shape[-1]), strict=True)
        middle = np.reshape([np.median(x[m]) if m.any() else 0.0 for x, m in rows], (*log.shape[:-1], 1))
        return np.where(made, bounded(np.where(made, log, middle)), np.nan)

    @cached_property
    def _own_steps(self) -> tuple[Floats, Floats]:
        """Return every client's mean and sum of squares [..., n].

        Of losses minus each step's mean.
        """
        own = self.apart.sum(-1) / self.steps
        return own, (self._or_zero(self.apart - own[..., None]) ** 2).sum(-1)


def bounded(values: Floats) -> Floats:
    """Values [..., n] cut to at most `BEYOND` times the median distance from their median.

    Then one false number moves a mean by no more than a true one could.

    >>> bounded(np.array([1.0, 2.0, 3.0, 4.0, 1e9])).tolist()
    [1.0, 2.0, 3.0, 4.0, 8.0]
    """
    middle = _median(values)
    most = BEYOND * _median(np.abs(values - middle))
    return np.asarray(np.clip(values, middle - most, middle + most))


def _median(values: Floats) -> Floats:
    """Return the median [..., 1].

    numpy's own takes several times as long for a cohort.
    """
    n = values.shape[-1]
    ordered = np.sort(values, -1)
    return np.asarray((ordered[..., (n - 1) // 2, None] + ordered[..., n // 2, None]) / 2)


def _cohort(losses: ArrayLike, sizes: ArrayLike | None = None) -> Readings:
    given = numbers(losses, "losses")
    if given.ndim != 2:
        raise InputError(f"losses must be [clients, steps], got shape {given.shape}")
    return Readings(given, None if sizes is None else numbers(sizes, "sizes"))
