"""A cohort's mean and variance of each local step, from sums alone. Losses are taken around a centre near their mean.

n clients of which client k made the first steps[k] steps; S steps are counted. The weights are 1 or sample counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgwc.core import SMALLEST_COHORT, Floats, Ids

LARGEST = 1e6  # a loss beyond it is an accident, and its square would crowd out the others' digits
NOISE = 2.0**-46  # a variance below is rounding


def counted_steps(steps: Sequence[int]) -> int:
    """S: the steps that at least three clients made. A sum over fewer would tell too much of each, and Eq. 1 leaves it out."""
    return sorted(steps)[-SMALLEST_COHORT]


def padded(losses: Sequence[Sequence[float]], n_steps: int) -> Floats:
    """[n, S], NaN where a client made fewer steps."""
    x = np.full((len(losses), n_steps), np.nan)
    for row, values in zip(x, losses, strict=True):
        row[: len(values)] = values[:n_steps]
    return x


def moments(losses: Floats, weights: Floats, centre: Floats) -> Floats:
    """Weighted sums of d and d^2, d = loss - centre: losses [n, S] with NaN, weights [n], centre [S] -> [2, S]."""
    d = np.where(np.isfinite(losses), losses - centre, 0.0)
    return np.stack([weights @ d, weights @ d**2])


def statistics(sums: Floats, steps: Ids, weights: Floats | None, centre: Floats, rounding: float) -> tuple[Floats, Floats]:
    """(mean [S], variance [S]) as `gaussian_rewards` has them, plain if there are no weights [n]; 0 where losses are equal.

    Whether they are equal up to rounding is judged by their mean: the largest loss, which that function takes, is not known.
    Sums that cannot come from losses raise ValueError.
    """
    made = steps[:, None] > np.arange(sums.shape[1])  # [n, S]
    n = (made if weights is None else made * weights[:, None]).sum(0)
    shift = sums[0] / n
    mean = centre + shift
    variance = (sums[1] - sums[0] * shift) / (n - 1) if weights is None else sums[1] / n - shift**2 + 1e-16
    noise = np.maximum((4 * rounding * mean) ** 2, NOISE * (1 + shift**2 / 16))
    if not (np.abs(mean) <= LARGEST).all() or (variance < -noise).any():
        raise ValueError("no losses have such a mean and variance")
    return mean, np.where(variance <= noise, 0.0, variance)
