"""Statistics of a cohort's losses, from sums over its clients alone.

n clients of which client k made the first steps[k] steps; S steps are counted. The weights are 1 or sample counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgwc.core.sampling import SMALLEST_COHORT
from fedgwc.core.types import Floats, Ids

LARGEST = 1e6  # a loss beyond it is an accident, and its square would crowd out the others' digits
NOISE = 2.0**-46  # a variance below is rounding


def counted_steps(steps: Sequence[int]) -> int:
    """Count the steps S that at least three clients made.

    A sum over fewer would tell too much of each, and Eq. 1 leaves it out.
    """
    return sorted(steps)[-SMALLEST_COHORT]


def padded(losses: Sequence[Sequence[float]], n_steps: int) -> Floats:
    """Arrange losses as [n, S], NaN where a client made fewer steps."""
    x = np.full((len(losses), n_steps), np.nan)
    for row, values in zip(x, losses, strict=True):
        row[: len(values)] = values[:n_steps]
    return x


def moments(losses: Floats, weights: Floats, centre: Floats) -> Floats:
    """Sum weighted deviations from the centre, and their squares: [2, S].

    losses [n, S] with NaN, weights [n], centre [S].
    """
    d = np.where(np.isfinite(losses), losses - centre, 0.0)
    return np.stack([weights @ d, weights @ d**2])


def statistics(sums: Floats, steps: Ids, weights: Floats | None, centre: Floats, rounding: float) -> tuple[Floats, Floats]:
    """Compute each step's mean [S] and variance [S] from sums.

    As `gaussian_rewards` has them, plain if there are no weights [n]; a variance is 0 where losses are equal. Whether they are
    equal up to rounding is judged by their mean: the largest loss, which that function takes, is not known. Sums that cannot
    come from losses raise ValueError.
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


def squared_means(losses: Floats, mean: Floats) -> float:
    """Sum the squares of clients' mean losses around the cohort's mean [S].

    losses [n, S] with NaN; each client counts once per step made. Divided by S, so it is no larger than the squares of one
    step.
    """
    made = np.isfinite(losses)
    return float((np.where(made, losses - mean, 0.0).sum(1) ** 2 / made.sum(1)).sum() / len(mean))


def variances(own: float, sums: Floats, steps: Ids) -> tuple[float, float]:
    """Compute the variances (between, within) of clients' losses from sums.

    As `loss_variances` has them, from the sum of `squared_means` and the plain sums of `moments` [2, S]. Sums that
    cannot come from losses raise ValueError.
    """
    n, S = len(steps), sums.shape[1]
    made = np.minimum(steps, S)
    squares = float((sums[1] - sums[0] ** 2 / (made[:, None] > np.arange(S)).sum(0)).sum())  # around the mean
    if not 0 <= S * own <= squares + 1e-9 * sums[1].sum() + n * S * NOISE:
        raise ValueError("no losses have such means")
    freedom = (made.sum() - n) * (n - 1) / n
    return S * own / (n - 1), max(squares - S * own, 0.0) / freedom if freedom > 0 else 0.0
