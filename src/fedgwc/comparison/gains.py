"""Each client's gain from one method over another, on the same test samples."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from fedgwc.comparison.outcomes import Candidate
from fedgwc.core.types import Floats, Ids
from fedgwc.metrics.differences import gain_interval, mcnemar

LEVEL = 0.05  # of the clients that are shown to gain or lose, the share that may be mistaken
OLD, NEW = "", "newcomers_"  # clients that trained, and those that training never saw, as their arrays are named


@dataclass(frozen=True)
class Gains:
    """Clients' gains in test accuracy; clients without test samples are left out."""

    clients: Ids  # [n]
    samples: Ids  # [n]
    gain: Floats  # [n] between -1 and 1
    low: Floats  # [n] of the 95 % interval
    high: Floats  # [n]
    p: Floats  # [n] of no difference: exact McNemar, Benjamini-Hochberg over the clients

    @property
    def better(self) -> float:
        """Return the share of clients that gain."""
        return float((self.gain > 0).mean())

    @property
    def shown(self) -> float:
        """Return the share of clients that are shown to gain."""
        return float(((self.gain > 0) & (self.p < LEVEL)).mean())

    @property
    def can_be_shown(self) -> bool:
        """Tell whether any client has enough test samples to show a gain."""
        return bool(2 * 0.5 ** float(self.samples.max()) < LEVEL)


def gains(ours: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]], who: str = OLD) -> Gains | None:
    """Compare two runs client by client.

    None where they did not keep each test sample's outcome, or not of the same samples.
    """
    ids, hits, offsets = (f"{who}{name}" for name in ("clients", "hits", "hits_offsets"))
    if not all(key in arrays for arrays in (ours, theirs) for key in (ids, hits, offsets)):
        return None
    if any(not np.array_equal(ours[key], theirs[key]) for key in (ids, offsets)) or len(ours[hits]) != len(theirs[hits]):
        return None
    ends: Ids = ours[offsets].astype(np.int64)
    samples = ends[1:] - ends[:-1]
    has = samples > 0
    if not has.any():
        return None
    client = np.repeat(np.arange(len(samples)), samples)
    one, other = (arrays[hits].astype(bool) for arrays in (ours, theirs))
    both, won, lost, neither = (
        np.bincount(client[cell], minlength=len(samples))[has]
        for cell in (one & other, one & ~other, ~one & other, ~one & ~other)
    )
    low, high = gain_interval(both, won, lost, neither)
    adjusted = false_discovery_control(mcnemar(won, lost))
    n = samples[has]
    return Gains(np.asarray(ours[ids])[has], n, (won - lost) / n, low, high, np.asarray(adjusted, np.float64))


@dataclass(frozen=True)
class Shares:
    """Shares of clients that gain, as means over seeds."""

    better: float
    shown: float  # by a test per client
    can_be_shown: bool
    seeds: int


def shares(candidate: Candidate, other: Candidate, who: str = OLD) -> Shares | None:
    """Average the shares of clients that are better off than with another method.

    Over the seeds in which both served the same test samples.
    """
    found = list(gains_by_seed(candidate, other, who).values())
    return None if not found else _mean(found)


def gains_by_seed(candidate: Candidate, other: Candidate, who: str = OLD) -> dict[int, Gains]:
    """Compute clients' gains in every seed that two methods share."""
    both = ((s, o.clients, other.outcomes[s].clients) for s, o in candidate.outcomes.items() if s in other.outcomes)
    return {seed: g for seed, ours, theirs in both if (g := gains(ours, theirs, who)) is not None}


def _mean(found: Sequence[Gains]) -> Shares:
    better, shown = (statistics.fmean(x) for x in ([g.better for g in found], [g.shown for g in found]))
    return Shares(better, shown, any(g.can_be_shown for g in found), len(found))
