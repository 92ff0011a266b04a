"""Confidence intervals of clients' Gaussian weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedgwc.core.arguments import check_counts, check_means, number, numbers
from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats


def weight_interval(
    gamma: ArrayLike, gamma2: ArrayLike, visits: ArrayLike, alpha: float | None = None, z: float = 1.96
) -> tuple[Floats, Floats]:
    """Bound each client's expected reward by a confidence interval.

    Returns (low [K], high [K]), around its weight.

    gamma and gamma2 are running means of the rewards and of their squares, so gamma2 - gamma^2 estimates the variance of
    one reward without assuming that local steps are independent. A running mean over `visits` rewards has that variance
    divided by `visits` (step 1/n) or, with a constant step alpha, times alpha / (2 - alpha), the variance proposition. A
    client seen fewer than twice has no interval: (0, 1). Nor has any with alpha 1, which keeps the last reward alone.
    """
    given = {"gamma": gamma, "gamma2": gamma2, "visits": visits}
    g, g2, n = (np.asarray(numbers(a, name), np.float64) for name, a in given.items())
    if len({a.shape for a in (g, g2, n)} - {()}) > 1:
        raise InputError(f"gamma, gamma2 and visits must be of one length, got shapes {g.shape}, {g2.shape} and {n.shape}")
    check_means(g, "gamma")
    check_means(g2, "gamma2")
    check_counts(n, "visits")
    number(z, "z", "positive and finite", lambda x: 0 < x < np.inf)
    if alpha is not None and number(alpha, "alpha", "in (0, 1]", lambda x: 0 < x <= 1) == 1:
        shape = np.broadcast_shapes(g.shape, g2.shape, n.shape)
        return np.zeros(shape), np.ones(shape)
    if alpha is None:
        variance = np.maximum(g2 - g**2, 0.0) / np.maximum(n - 1, 1)
    else:
        # Both running means start at 0 and so are too small by this factor. And g2 - g^2 lacks the variance of g itself.
        full = np.maximum(1 - (1 - alpha) ** n, 1e-12)
        g, g2 = g / full, g2 / full
        variance = np.maximum(g2 - g**2, 0.0) * alpha / (2 - alpha) / (1 - alpha / (2 - alpha))
    half = z * np.sqrt(variance)
    unknown = n < 2
    return np.where(unknown, 0.0, np.clip(g - half, 0, 1)), np.where(unknown, 1.0, np.clip(g + half, 0, 1))
