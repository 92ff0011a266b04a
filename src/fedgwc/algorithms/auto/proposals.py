"""Proposed cuts of a cluster at the end of a window.

`verdicts.py` decides whether it is cut.
"""

from __future__ import annotations

from fedgwc.algorithms.auto.cuts import TOO_FEW, Cut, best_cut, cut_without_groups, standing_cuts
from fedgwc.algorithms.auto.settings import Settings
from fedgwc.algorithms.auto.state import Cluster
from fedgwc.algorithms.auto.windows import places
from fedgwc.core.types import Floats, Ids

STANDS = 0.5  # the last window's cut is kept as long as it gains at least this share of the best cut's gain


def proposed(a: Settings, known: Cluster) -> tuple[Cut | None, bool]:
    """Return the best cut, and whether only echoes were looked at.

    Clients that differ are looked at in all axes. If they lose alike, or are few, only the axes of echoes (who helps whom) can
    show groups. Clients that drift are looked at in all axes too; if no groups gain enough, they are cut along the first axis of
    echoes, so that those who help each other stay together.
    """
    helping, points = places(known, a.directions)
    by_echoes = helping > 0 and not known.drifts and (not known.differs or len(points) < TOO_FEW)
    cut = _groups(a, points[:, :helping] if by_echoes else points, known.cut)
    if known.drifts and helping and (cut is None or cut.gain < a.gain):
        return cut_without_groups(points, a.min_size), False
    return cut, by_echoes


def _groups(a: Settings, points: Floats, before: Ids | None) -> Cut | None:
    """The best cut, or the last window's cut as long as it still gains enough.

    Several groups can be cut in two in several ways. Chance decides which is best, so two windows would hardly ever agree.
    """
    cut = best_cut(points, a.min_size, a.n_max)
    if cut is None or before is None:
        return cut
    enough = max(a.gain, STANDS * cut.gain)
    again = [c for c in standing_cuts(points, before, a.min_size) if c.gain >= enough]
    return max((c for c in again if agreement(c.labels, before) >= a.agreement), key=lambda c: c.gain, default=cut)


def agreement(cut: Ids, other: Ids) -> float:
    """Adjusted Rand index of two cuts."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(cut, other))
