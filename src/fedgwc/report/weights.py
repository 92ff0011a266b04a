"""Gaussian weights at the end of a run, with their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.fedgwc.algorithm import FedGWC
from fedgwc.algorithms.method import Method
from fedgwc.core.protocols import Algorithm
from fedgwc.core.sampling import cohort_size
from fedgwc.core.types import Floats, Ids
from fedgwc.metrics.intervals import weight_interval
from fedgwc.report.data import Matrix, Run
from fedgwc.report.matrices import at_end


@dataclass(frozen=True)
class Weights:
    """Weights of one cluster, from the lowest to the highest."""

    cluster: int
    clients: Ids  # [K]
    gamma: Floats  # [K]
    low: Floats  # [K]
    high: Floats  # [K]
    visits: Ids  # [K]

    @property
    def once(self) -> NDArray[np.bool_]:
        """Tell which clients [K] were seen too rarely to have an interval.

        Theirs is everything from 0 to 1.
        """
        return self.visits < 2


def weights_of(run: Run, algorithm: Algorithm[Any]) -> list[Weights]:
    return [_weights(m, algorithm, len(run.clusters)) for m in at_end(run) if m.gamma is not None and m.visits is not None]


def _weights(matrix: Matrix, algorithm: Algorithm[Any], n_clients: int) -> Weights:
    gamma, visits = np.asarray(matrix.gamma, np.float64), np.asarray(matrix.visits)
    visits = visits.diagonal() if visits.ndim == 2 else visits
    alpha = _step(algorithm, len(gamma), n_clients)
    low, high = weight_interval(gamma, np.asarray(matrix.gamma2), visits, alpha)
    if alpha is not None:  # a running mean with a constant step starts from 0 and is small by this factor
        gamma = gamma / np.maximum(1 - (1 - alpha) ** visits, 1e-12)
    seen = np.flatnonzero(visits > 0)
    ranked = seen[np.argsort(gamma[seen], kind="stable")]
    return Weights(matrix.cluster, matrix.members[ranked], gamma[ranked], low[ranked], high[ranked], visits[ranked])


def _step(algorithm: Algorithm[Any], n_members: int, n_clients: int) -> float | None:
    """Return the constant step of the running means.

    None: they are plain means.
    """
    if not (isinstance(algorithm, Method) and isinstance(algorithm.who, FedGWC)):
        return None
    who = algorithm.who
    cohort = cohort_size(n_clients if who.cohort == "same" else n_members, algorithm.rate)
    return who.step(cohort, n_members)
