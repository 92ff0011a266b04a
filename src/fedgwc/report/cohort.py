"""A round's cohort as an example of how rewards are computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedgwc.algorithms.fedgwc.rewards import gaussian_rewards
from fedgwc.core.types import Floats, Ids
from fedgwc.report.data import Run
from fedgwc.runs.replay import Trace

LOOK_BACK = 50  # rounds before the first split among which the clearest one is shown


@dataclass(frozen=True)
class Cohort:
    round: int
    clients: Ids  # [n]
    losses: Floats  # [n, S]
    rewards: Floats  # [n]

    @property
    def mean(self) -> Floats:
        return np.asarray(self.losses.mean(0), np.float64)

    @property
    def sigma(self) -> Floats:
        return np.asarray(self.losses.std(0, ddof=1), np.float64)


def clearest(run: Run, trace: Trace) -> Cohort | None:
    """Choose the round whose highest and lowest reward differ most.

    Among the last rounds of the undivided federation.
    """
    first = run.splits[0].ended if run.splits else None
    last = min(first or len(trace.ids), len(trace.ids))
    found = [c for c in (_cohort(trace, t) for t in range(max(0, last - LOOK_BACK), last)) if c is not None]
    return max(found, key=lambda c: (float(np.ptp(c.rewards)), c.round), default=None)


def _cohort(trace: Trace, row: int) -> Cohort | None:
    ids, losses = trace.ids[row], trace.losses[row]
    complete = (ids >= 0) & np.isfinite(losses).all(1)  # those who made every step
    if complete.sum() < 3 or losses.shape[1] < 2:
        return None
    x = losses[complete].astype(np.float64)
    return Cohort(row + 1, ids[complete], x, gaussian_rewards(losses[complete]))
