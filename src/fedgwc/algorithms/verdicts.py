"""What is said for and against dividing a cluster at the end of a window of rounds, and what decides.

A cut is believed if the window before would have made the same one, and if it is worth another model: because clients drift,
or because they differ and the groups are clearer than chance makes them. docs/algorithms/fedgwc.md says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedgwc.algorithms.fedgwc_state import Cluster, Verdict
from fedgwc.core import Ids
from fedgwc.cuts import Cut


def judged(c: Cluster, cut: Cut | None, agreement: float, chance: Callable[[Cut], float]) -> Verdict:
    """The verdict on the cut of a window that is over; `chance` is dear, and asked only where all else is in favour."""
    seen = Verdict(c.id, len(c.members), "no cut")
    if c.heard:
        seen = replace(seen, drift=_finite(c.drift), adrift=c.adrift / c.heard)
        seen = replace(seen, contrast=_finite(c.contrast), apart=c.apart / c.heard)
    if cut is None:
        return seen
    seen = replace(seen, sizes=tuple(np.bincount(cut.labels).tolist()), score=cut.score)
    if c.cut is None:
        return replace(seen, reason="first cut")
    alike = _agreement(c.cut, cut.labels)
    seen = replace(seen, agreement=alike)
    if alike < agreement:
        return replace(seen, reason="agreement")
    if 0 < c.heard <= 2 * c.adrift:  # nobody can use the model they share: any division into likes helps, groups or not
        return replace(seen, reason="drift")
    if 2 * c.apart < c.heard:
        return replace(seen, reason="contrast")
    best = chance(cut)
    return replace(seen, chance=_finite(best), reason="groups" if cut.score < best else "chance")


def _agreement(a: Ids, b: Ids) -> float:
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(a, b))


def _finite(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
