"""The size and the choice of a round's cohort."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids

MOST_MODELS = 1000  # that an algorithm begins with: all of them are held at once
SMALLEST_COHORT = 3  # the paper's privacy floor: an average over fewer clients reveals too much of each

Rate = Annotated[float, "share of the clients that train in a round (at least 3 clients)"]


def check_rate(rate: float) -> None:
    if not 0 < rate <= 1:
        raise InputError(f"rate must be in (0, 1], got {rate}; it is the share of a cluster's clients that train in a round")


def check_models(k: int, name: str, what: str) -> None:
    if k < 1:
        raise InputError(f"{name} must be at least 1, got {k}; it is the number of {what}, and 1 is FedAvg")
    if k > MOST_MODELS:
        raise InputError(f"{name} must be at most {MOST_MODELS}, got {k}; it is the number of {what}, each as large as the model")


def cohort_size(n_members: int, rate: float) -> int:
    """Return the cohort's size for a number of members.

    The rate's share, rounded half up, but at least 3 where there are 3.

    >>> cohort_size(100, 0.1), cohort_size(25, 0.1), cohort_size(2, 0.1)
    (10, 3, 2)
    """
    return min(n_members, max(int(np.floor(rate * n_members + 0.5)), SMALLEST_COHORT))


def sample(members: Ids, size: int, rng: np.random.Generator) -> Ids:
    """Draw `size` distinct members, in ascending order.

    The order of a cohort must not matter.
    """
    if size >= len(members):
        return np.sort(members)
    return np.sort(rng.choice(members, size, replace=False))


def check_initial_models(models: Tensor, k: int, who: str) -> Tensor:
    """Check that models are [k, D], for `who` starts from k initialisations."""
    if models.ndim != 2 or len(models) != k:
        raise InputError(
            f"{who} starts from {k} different models, so init wants [{k}, D], got {list(models.shape)}; "
            f"stack {k} independent initialisations"
        )
    return models
