"""After groups were divided: clients near the cut wait until the two sides have parted, and then say whose model serves them.

A cut is made of what losses tell while everybody shares one model, and has a few clients on the wrong side, nearly always some
of those nearest to it. Once the two models differ, a client's losses under both tell where it belongs, provided that it has
trained neither of them meanwhile: whoever trains a model makes it its own. So those few sit out for a while, and with them a
few typical clients of either side, so that most of those who wait show what is usual there. Until they have caught up, nobody
is compared with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.fedgwc_state import Cluster, Verdict
from fedgwc.algorithms.learning import how_many
from fedgwc.algorithms.membership import with_members
from fedgwc.algorithms.proposals import proposed
from fedgwc.core import Engine, Floats, Ids, TooFewReplies, losses_under, stacked
from fedgwc.cuts import Cut

if TYPE_CHECKING:
    from fedgwc.algorithms.fedgwc import FedGWC

NEAR = 0.2  # of the clients on either side of a cut, at most: who wait, because they may belong to the other one
HALFWAY = 0.5  # from where the two sides meet to a side's median client; beyond that nobody is unsure
WITNESSES = 5  # clients around that one who wait too, a fifth of their side at most ...
TOO_FEW = 3  # ... and of fewer nobody could tell what is usual
EVERY = 10  # times that the others have trained, those who wait are asked ...
CLEAR = 5.0  # ... until it shows so clearly who is served by which model: deviations between the two sides ...
LONGEST = 40  # ... or the others have trained so many times
SELDOM = 0.1  # of those who wait are taken to be misplaced
LATE = 2  # windows in which they catch up: the one in which they waited, and another
NOBODY: Ids = np.array([], np.int64)


def who_waits(cut: Cut) -> Ids:
    """By their places: clients near the other side of a cut, and witnesses; nobody where there are none of either."""
    sides = [np.flatnonzero(cut.labels == y) for y in (0, 1)]
    most = [int(NEAR * len(side)) for side in sides]
    if min(most) < TOO_FEW:
        return NOBODY
    medians = [np.median(cut.on_line[side]) for side in sides]
    away = abs(cut.on_line - np.mean(medians)) / max(float(medians[1] - medians[0]) / 2, 1e-12)  # 0: where they meet, 1: median
    away[(cut.on_line > np.mean(medians)) != (cut.labels == 1)] = 0.0  # beyond it already
    unsure = [_least(away, side[away[side] < HALFWAY], n) for side, n in zip(sides, most, strict=True)]
    others = [np.setdiff1d(side, some) for side, some in zip(sides, unsure, strict=True)]
    witnesses = [_least(np.abs(away - 1), some, min(n, WITNESSES)) for some, n in zip(others, most, strict=True)]
    return np.sort(np.concatenate([*unsure, *witnesses])) if any(map(len, unsure)) else NOBODY


def _least(of: NDArray[Any], some: Ids, n: int) -> Ids:
    return some[np.argsort(of[some], kind="stable")][:n]


def looked_again(
    a: FedGWC, clusters: Sequence[Cluster], engine: Engine, n_clients: int, number: int
) -> tuple[list[Cluster], list[Verdict]]:
    """Clusters after round `number`, with clients that have waited long enough where they are served best."""
    after, verdicts = list(clusters), []
    on_trial = [i for i, c in enumerate(clusters) if c.waiting is not None]
    for i, j in combinations(on_trial, 2):
        sides = clusters[i], clusters[j]
        if sides[0].parent != sides[1].parent:
            continue
        trained, by_then = (min(_trained(a, c, n_clients, n) for c in sides) for n in (number - 1, number))
        if by_then < LONGEST and by_then // EVERY == trained // EVERY:
            continue
        members, told, clear = _regrouped(a, sides, engine)
        if clear < CLEAR and by_then < LONGEST:
            continue
        after[i], after[j] = (_joined(a, c, m, _waiting(sides)) for c, m in zip(sides, members, strict=True))
        verdicts += told
    return after, verdicts


def _trained(a: FedGWC, c: Cluster, n_clients: int, number: int) -> float:
    """How often by round `number`: by rounds, not by who has answered. Whatever happens, nobody waits for ever."""
    there = len(c.members) - len(_waiting([c]))
    return (number - c.born) * a.cohort_of(there, n_clients) / there


def _waiting(sides: Sequence[Cluster]) -> Ids:
    return np.concatenate([NOBODY if c.waiting is None else c.waiting for c in sides])


def _regrouped(a: FedGWC, sides: tuple[Cluster, Cluster], engine: Engine) -> tuple[list[Ids], list[Verdict], float]:
    """(the members of both sides if everybody who waited goes where it is served better, what to tell of it, how clear it is)."""
    asked, stay = _waiting(sides), [c.members for c in sides]
    try:
        clients, losses = losses_under(stacked([c.server.theta for c in sides]), asked, engine)
    except TooFewReplies:
        return stay, [], 0.0
    known = np.isin(clients, asked) & np.isfinite(losses).all(1)  # others may have stood in
    clients = clients[known]
    side = np.isin(clients, sides[1].members).astype(np.int64)
    served, clear = better_served(side, losses[known])
    gone = [clients[(side == y) & (served != y)] for y in (0, 1)]
    members = [np.union1d(np.setdiff1d(stay[y], gone[y]), gone[1 - y]) for y in (0, 1)]
    if min(map(len, members)) < a.min_size:
        return stay, [], clear
    told = [
        Verdict(c.id, len(c.members), "moved", sizes=(len(c.members) - len(gone[y]), len(gone[y])), to=sides[1 - y].id)
        for y, c in enumerate(sides)
        if len(gone[y])
    ]
    return members, told, clear


def better_served(side: Ids, losses: Floats) -> tuple[Ids, float]:
    """([n] the sides, 0 or 1, on which clients probably belong, by how many deviations one model serves the two sides better).

    Of the sides where they are, and their `losses` [n, 2] under either model. That of the larger side may be better for
    everybody; so what counts is not which loss is lower but by how much, beside what is usual on either side.
    """
    if min((side == 0).sum(), (side == 1).sum()) < TOO_FEW:
        return side, 0.0
    more = losses[:, 0] - losses[:, 1]
    usual = np.array([np.median(more[side == y]) for y in (0, 1)])
    gap = float(usual[1] - usual[0])
    if gap < 1e-12:
        return side, 0.0
    deviation = float(np.median(abs(more - usual[side]))) / 0.6745  # as of a normal; a few misplaced ones do not count
    clear = gap / max(deviation, 1e-3 * gap)
    place = (more - usual[0]) / gap
    towards_other = np.where(side == 0, place, 1 - place)  # 0: as is usual on its side, 1: as on the other
    odds = clear**2 * (towards_other - 0.5)  # logarithm of how much likelier its loss is there, of two normals
    return np.where(odds > np.log((1 - SELDOM) / SELDOM), 1 - side, side), clear


def _joined(a: FedGWC, c: Cluster, members: Ids, waited: Ids) -> Cluster:
    """A side with these members, among whom nobody waits any more. If they are others now, it would be cut elsewhere."""
    same, c = np.array_equal(members, c.members), replace(with_members(c, members), waiting=None)
    if not a.is_divisible(len(members)):
        return replace(c, late=None)  # no window of theirs ends
    late = np.where(np.isin(members, waited), LATE, 0)
    level = None if c.level is None else np.where(late > 0, np.nan, c.level)  # what was usual for them is long ago
    c = replace(c, level=level, late=late if c.late is None else np.maximum(late, c.late))
    if same:
        return c
    cut = proposed(a, c)[0]
    ripe = how_many(c.visits >= a.visits_wanted(c.attempts, c.by_pairs))
    return replace(c, ripe=ripe, cut=None if cut is None else cut.labels)
