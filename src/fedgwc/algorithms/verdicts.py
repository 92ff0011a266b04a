"""What is said for and against dividing a cluster at the end of a window of rounds, and what decides.

A cut is believed if the window before would have made the same one, and if it is worth another model: because clients drift,
or because they differ and the groups are clearer than chance makes them. docs/algorithms/fedgwc.md says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from fedgwc.algorithms.fedgwc_state import Cluster, Verdict
from fedgwc.core import Ids
from fedgwc.cuts import Cut


@dataclass(frozen=True)
class Attempt:
    """To divide a cluster, and what came of it."""

    cluster: Cluster  # as it is now
    labels: Ids | None = None  # [K] the group of each member; None: it stays whole
    scores: dict[int, float] = field(default_factory=dict)  # Davies-Bouldin by number of groups
    verdict: Verdict | None = None  # at the end of a window


def judged(c: Cluster, cut: Cut | None, agreement: float, margin: float, chance: Callable[[Cut], float]) -> Verdict:
    """The verdict on the cut of a window that is over; `chance` is dear, and asked only where all else is in favour."""
    seen = Verdict(c.id, len(c.members), "no cut", rounds=c.heard, adrift=c.adrift, apart=c.apart)
    seen = replace(seen, drift=_finite(c.drift), contrast=_finite(c.contrast))
    if cut is None:
        return seen
    seen = replace(seen, sizes=tuple(np.bincount(cut.labels).tolist()), score=cut.score)
    if c.cut is None:
        return replace(seen, reason="first cut")
    alike = _agreement(c.cut, cut.labels)
    seen = replace(seen, agreement=alike)
    if alike < agreement:
        return replace(seen, reason="agreement")
    if seen.drifts:
        return replace(seen, reason="drift")
    if not seen.differs:
        return replace(seen, reason="contrast")
    best = chance(cut)
    seen = replace(seen, chance=_finite(best))
    if cut.score >= best:
        return replace(seen, reason="chance")
    # Groups that are only just visible still have members on the wrong side, which a later cut finds.
    early = cut.score > (1 - margin) * best and cut.score < c.cut_score
    return replace(seen, reason="early" if early else "groups")


def in_words(v: Verdict, agreement: float, drift: float, contrast: float) -> str:
    """Why, with what was seen beside what is asked for; where a cluster stays whole, everything that is known against it."""
    if v.reason == "drift":
        return f"one step of their own takes much of clients' losses away ({_told(v, 'drift', v.drift, drift, v.adrift)})"
    differ = _told(v, "contrast", v.contrast, contrast, v.apart)
    score = f"Davies-Bouldin {v.score or 0:.2f}" + ("" if v.chance is None else f", by chance {v.chance:.2f}")
    if v.reason == "groups":
        return f"there are two groups of clients that differ ({score}; {differ})"
    against = {
        "no cut": "nothing sets any clients apart",
        "first cut": "there is no window before to agree with",
        "agreement": f"the window before would have cut elsewhere (agreement {v.agreement or 0:.2f}, {agreement:g} is asked for)",
        "chance": f"chance makes groups as clear as these ({score})",
        "early": f"two groups are just becoming visible, and clearer than a window ago ({score})",
    }
    parts = [against[v.reason]] if v.reason in against else []
    if not (v.drifts or v.differs):
        parts.append(f"in most rounds clients differ little beyond their own batches ({differ})")
    return ", and ".join(parts)


def _told(v: Verdict, name: str, value: float | None, limit: float, n: int) -> str:
    if not v.rounds:
        return f"{name} unknown"
    much = f"{limit:g} or more in {n:,} of {v.rounds:,} rounds"
    return f"{name} {much}" if value is None else f"{name} {value:.2f}, {much}"


def _agreement(a: Ids, b: Ids) -> float:
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(a, b))


def _finite(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
