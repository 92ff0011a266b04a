"""Gaussian weights at the end of a run, with their intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.auto.algorithm import FedGWC
from fedgwc.algorithms.fedgwc.interactions import weight_interval
from fedgwc.core.sampling import cohort_size
from fedgwc.core.types import Floats, Ids
from fedgwc.report.data import Matrix, Run
from fedgwc.report.matrices import at_end


@dataclass(frozen=True)
class Weights:
    """Of one cluster, from the lowest weight to the highest."""

    cluster: int
    clients: Ids  # [K]
    gamma: Floats  # [K]
    low: Floats  # [K]
    high: Floats  # [K]
    visits: Ids  # [K]

    @property
    def once(self) -> NDArray[np.bool_]:
        """[K]: seen too rarely to have an interval; theirs is everything from 0 to 1."""
        return self.visits < 2


def weights_of(run: Run, algorithm: FedGWC) -> list[Weights]:
    return [_weights(m, algorithm, len(run.clusters)) for m in at_end(run) if m.gamma is not None and m.visits is not None]


def _weights(matrix: Matrix, algorithm: FedGWC, n_clients: int) -> Weights:
    gamma, visits = np.asarray(matrix.gamma, np.float64), np.asarray(matrix.visits)
    visits = visits.diagonal() if visits.ndim == 2 else visits
    alpha = step(algorithm, len(gamma), n_clients)
    low, high = weight_interval(gamma, np.asarray(matrix.gamma2), visits, alpha)
    if alpha is not None:  # a running mean with a constant step starts from 0 and is small by this factor
        gamma = gamma / np.maximum(1 - (1 - alpha) ** visits, 1e-12)
    seen = np.flatnonzero(visits > 0)
    ranked = seen[np.argsort(gamma[seen], kind="stable")]
    return Weights(matrix.cluster, matrix.members[ranked], gamma[ranked], low[ranked], high[ranked], visits[ranked])


def step(algorithm: FedGWC, n_members: int, n_clients: int) -> float | None:
    """The constant step of the running means; None: they are plain means."""
    if algorithm.step == "1/n":
        return None
    if algorithm.step == "constant":
        return algorithm.alpha
    cohort = cohort_size(n_clients if algorithm.cohort == "same" else n_members, algorithm.rate)
    return min(1.0, cohort / n_members)
