"""Losses of cohorts, with their mean and variance in every step.

n clients in a cohort, S local steps; [..., n, S] are equally large cohorts at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgwc.core.arguments import numbers
from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats

HUGE = 1e100  # larger losses are cut to this, so that their squares are finite
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class LossStatistics:
    """Losses of cohorts, with their mean and variance in every step."""

    losses: Floats  # [..., n, S]
    made: NDArray[np.bool_]  # [..., n, S] steps that at least three clients made
    complete: bool  # all of them
    steps: Floats | int  # [..., n] steps of each client
    largest: Floats  # [..., S] magnitude of each step's losses
    plain_mean: Floats  # [..., S]
    apart: Floats  # [..., n, S] losses minus the plain mean; 0 for steps that were not made
    mean: Floats  # [..., S] plain, or weighted by sample counts
    variance: Floats  # [..., S] likewise; 0: equal up to rounding

    @classmethod
    def of_cohort(cls, losses: ArrayLike, sizes: ArrayLike | None = None) -> LossStatistics:
        """Compute the statistics of one cohort's losses [n, S]."""
        values = numbers(losses, "losses")
        if values.ndim != 2:
            raise InputError(f"losses must be [clients, steps], got shape {values.shape}")
        return cls.of(values, None if sizes is None else numbers(sizes, "sizes"))

    @classmethod
    def of(cls, values: NDArray[Any], sizes: ArrayLike | None = None) -> LossStatistics:
        """Compute the statistics of losses [..., n, S]."""
        rounding = np.finfo(values.dtype if values.dtype.kind == "f" else np.float64).eps
        x, made, complete = _checked(values)
        n, S = x.shape[-2:]
        clients: Floats | int = n if complete else np.maximum(made.sum(-2), 2)  # at least 2, to divide by
        steps = S if complete else made.sum(-1)
        zero_filled = x if complete else np.where(made, x, 0.0)
        largest, plain_mean = np.abs(zero_filled).max(-2), zero_filled.sum(-2) / clients
        apart = x - plain_mean[..., None, :]
        apart = apart if complete else np.where(made, apart, 0.0)
        mean, variance = plain_mean, (apart**2).sum(-2) / (clients - 1)  # the sample variance, as in the paper
        if sizes is not None:
            mean, variance = _weighted(zero_filled, made, sizes)
        variance = np.where(variance <= (4 * rounding * largest) ** 2, 0.0, variance)
        return cls(x, made, complete, steps, largest, plain_mean, apart, mean, variance)

    def or_zero(self, values: Floats) -> Floats:
        """Replace values [..., n, S] of steps that were not made by 0."""
        return values if self.complete else np.where(self.made, values, 0.0)


def _checked(values: NDArray[Any]) -> tuple[Floats, NDArray[np.bool_], bool]:
    """Return losses, their valid steps [..., n, S], and whether all are valid.

    Valid steps are those that at least three clients made.
    """
    if values.shape[-1] < 1:
        raise InputError(f"losses must be [clients, steps] with at least one step, got shape {values.shape}")
    if values.shape[-2] < 3:
        raise InputError(
            f"rewards need at least 3 clients, got {values.shape[-2]}: two losses carry no information about each other"
        )
    x = values.astype(np.float64)
    made = np.isfinite(x)
    complete = bool(made.all())
    if not complete:
        if np.isinf(x).any():
            raise InputError("losses must be finite (NaN marks a step that was not made); drop clients whose loss is infinite")
        made &= made.sum(-2, keepdims=True) >= 3
        if not made.any(-1).all():
            raise InputError("every client needs at least one loss of a step that at least 3 clients made")
    return x.clip(-HUGE, HUGE), made, complete


def _weighted(x: Floats, made: NDArray[np.bool_], sizes: ArrayLike) -> tuple[Floats, Floats]:
    """Weight mean and variance per step [..., S] by sample counts, as the authors' release does."""
    w = np.asarray(sizes, np.float64)
    if w.shape != x.shape[:-1] or not ((w >= TINY) & (w <= HUGE)).all():  # whose sums can be divided by
        raise InputError(f"sizes must be {x.shape[-2]} positive sample counts, got {sizes!r}")
    share = np.where(made, w[..., None], 0.0)
    share = share / np.maximum(share.sum(-2, keepdims=True), TINY)
    mean = (share * x).sum(-2)
    return mean, (share * (x - mean[..., None, :]) ** 2).sum(-2) + 1e-16
