"""Gaussian rewards (Eq. 1): closeness of a client's losses to its cohort's.

n clients in a cohort, S local steps; [..., n, S] are equally large cohorts at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedgwc.algorithms.losses import TINY, LossStatistics
from fedgwc.core.types import Floats


def gaussian_rewards(losses: ArrayLike, *, sizes: ArrayLike | None = None, normalise: bool = False) -> Floats:
    """Reward each client by its losses' distance from the cohort's mean, in (0, 1].

    losses [n, S] -> [n], averaged over the steps a client made; NaN marks a step that it did not make, and a step made by fewer
    than three clients is left out. Losses that are equal up to rounding give reward 1. Fewer than 3 clients are refused: two
    losses always lie the same number of deviations from their mean, so their rewards, exp(-1/4) each, say nothing.

    The keywords are the authors' released variants: `sizes` [n] weights mean and variance by sample counts, `normalise`
    divides by the sum over the cohort.

    >>> gaussian_rewards([[1.0], [2.0], [3.0]]).round(4).tolist()
    [0.6065, 1.0, 0.6065]
    """
    return rewards_of(LossStatistics.of_cohort(losses, sizes), normalise)


def rewards_of(cohort: LossStatistics, normalise: bool = False) -> Floats:
    """Average each client's rewards over its steps: [..., n]."""
    reward = _step_rewards(cohort.losses, cohort.mean[..., None, :], cohort.variance[..., None, :])
    omega: Floats = cohort.or_zero(reward).sum(-1) / cohort.steps
    return omega / omega.sum(-1, keepdims=True) if normalise else omega


def rewards_around(losses: Floats, mean: Floats, variance: Floats) -> Floats:
    """Reward losses [n, S] around given statistics [S] of each step.

    Averages [n] over the steps that a client made. A variance of 0, losses that are equal up to rounding, gives reward 1.
    """
    valid = np.isfinite(losses)
    with np.errstate(invalid="ignore"):
        reward = _step_rewards(losses, mean, variance)
    omega: Floats = np.where(valid, reward, 0.0).sum(1) / valid.sum(1)
    return omega


def _step_rewards(losses: Floats, mean: Floats, variance: Floats) -> Floats:
    """Compute Eq. 1 in every step [..., n, S]."""
    flat = variance <= 0
    reward = np.exp(-((losses - mean) ** 2) / (2 * np.where(flat, 1.0, variance)))
    return np.where(flat, 1.0, np.maximum(reward, TINY))  # far outliers underflow; 0 is not a reward
