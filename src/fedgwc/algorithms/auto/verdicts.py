"""Evidence for and against dividing a cluster, and the decision.

Clients that drift are divided from the third window on, in children from the second on. Others are divided if the window before
would have made the same cut (agreement), if groups describe them better than one does (gain), and if they differ (contrast) or
the cut has foretold who helps whom. Of fewer than ten clients only the latter counts. docs/algorithms/auto.md says why.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fedgwc.algorithms.auto.cuts import TOO_FEW, TOO_FEW_IN_ONE, Cut
from fedgwc.algorithms.auto.proposals import agreement as agreement_between
from fedgwc.algorithms.auto.state import Cluster, Verdict
from fedgwc.core.types import Ids

SURE = 1  # comparisons between windows required before a division because of drift
FORETOLD = 3  # deviations above chance by which a cut must have foretold who helps whom
NOBODY: Ids = np.array([], np.int64)


class Waiting(NamedTuple):
    """Clients that sit out during a trial, as indices among the members."""

    clients: Ids = NOBODY
    witnesses: Ids = NOBODY  # those of them who are typical of their side


NO_ONE_WAITS = Waiting()


@dataclass(frozen=True)
class Attempt:
    """An attempt to divide a cluster, and its outcome."""

    cluster: Cluster  # after the attempt
    labels: Ids | None = None  # [K] the group of each member; None if the cluster stays whole
    scores: dict[int, float] = field(default_factory=dict)  # Davies-Bouldin by number of groups
    verdict: Verdict | None = None  # only at the end of a window
    waiting: Waiting = NO_ONE_WAITS  # who sits out if the division is on trial


def judged(c: Cluster, cut: Cut | None, agreement: float, gain: float, by_echoes: bool) -> Verdict:
    """The verdict on the cut at the end of a window; `agreement` and `gain` are what is required."""
    seen = Verdict(c.id, len(c.members), "no cut", rounds=c.heard, adrift=c.adrift, apart=c.apart, by_echoes=by_echoes)
    seen = replace(seen, drift=_finite(c.drift), contrast=_finite(c.contrast), differed=c.differed)
    if cut is None:
        return seen
    seen = replace(seen, sizes=tuple(np.bincount(cut.labels).tolist()), score=cut.score)
    seen = replace(seen, gain=_finite(cut.gain), wanted=_finite(gain))
    if c.cut is None:
        return replace(seen, reason="first cut")
    alike = agreement_between(c.cut, cut.labels)
    seen = replace(seen, agreement=alike, foretold=c.foretold if c.told2 > 0 else None)
    # Early on it is hardly known who helps whom; and while some are late, drift is known from only a few rounds.
    if seen.drifts and c.attempts >= SURE and not c.some_are_late:
        return replace(seen, reason="drift")
    if np.isneginf(cut.gain):
        return replace(seen, reason="too early" if seen.drifts else "no cut")
    if alike < agreement:
        return replace(seen, reason="agreement")
    if not (seen.differs or by_echoes):
        return replace(seen, reason="contrast")
    if cut.gain < gain:  # a cut through barely visible groups misplaces some clients; a later one is better
        return replace(seen, reason="no groups")
    return replace(seen, reason="chance" if by_echoes and c.foretold < FORETOLD else "groups")


def in_words(v: Verdict, agreement: float, drift: float, contrast: float) -> str:
    """Explain a verdict in words.

    With observed and required values; if a cluster stays whole, all that speaks against a division.
    """
    drifts = f"one step of their own takes much of clients' losses away ({_reading(v, 'drift', v.drift, drift, v.adrift)})"
    if v.reason == "drift":
        return drifts
    if v.reason == "moved":
        *_, gone = v.sizes
        return f"the model of cluster {v.to} serves {gone} of them better, and {'they go' if gone > 1 else 'it goes'} there"
    if v.reason in ("confirmed", "rejoined"):
        apart = f"{v.clear or 0:.1f} deviations between the two"
        if v.reason == "confirmed":
            return f"its clients and those of cluster {v.to} are served by different models ({apart})"
        return f"a model of its own served neither side better ({apart})"
    differ = _reading(v, "contrast", v.contrast, contrast, v.apart)
    differ += ", and in half of those of an earlier window" if v.differed and 2 * v.apart < v.rounds else ""
    told = f"gain {v.gain or 0:.2f}" + ("" if v.wanted is None else f", threshold {v.wanted:g}")
    foretold = f"the cut before told who would help whom {v.foretold or 0:.1f} deviations better than chance"
    if v.reason == "groups" and v.by_echoes:
        return f"there are groups of clients that help each other ({told}; {foretold}, threshold {FORETOLD})"
    if v.reason == "groups":
        return f"there are groups of clients that differ ({told}; {differ})"
    few = v.clients < (TOO_FEW_IN_ONE if v.by_echoes else TOO_FEW)
    against = {
        "no cut": "so few clients form groups only by chance" if few else "nothing sets enough clients apart",
        "first cut": "the window before made no cut to agree with",
        "too early": f"{drifts}, and it is too early to divide them for that",
        "agreement": f"the window before would have cut elsewhere (agreement {v.agreement or 0:.2f}, threshold {agreement:g})",
        "no groups": f"no groups describe clients clearly better than one does ({told})",
        "chance": f"groups may be chance: {foretold}, threshold {FORETOLD}",
    }
    parts = [against[v.reason]] if v.reason in against else []
    if v.drifts and v.reason != "too early":
        parts.append(f"{drifts}: a later window may divide them for that")
    if v.reason == "contrast" or not (v.drifts or v.differs or v.by_echoes):
        parts.append(f"in most rounds clients differ little beyond their own batches ({differ})")
    return ", and ".join(parts)


def _reading(v: Verdict, name: str, value: float | None, limit: float, n: int) -> str:
    if not v.rounds:
        return f"{name} unknown"
    much = f"at least {limit:g} in {n:,} of {v.rounds:,} rounds"
    return f"{name} {much}" if value is None else f"{name} {value:.2f}, {much}"


def _finite(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
