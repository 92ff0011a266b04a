"""After groups were divided: clients near the cut wait until the two sides have parted, and then say whose model serves them.

A cut is made of what losses tell while everybody shares one model, and has a few clients on the wrong side, nearly always some
of those nearest to it. Once the two models differ, a client's losses under both tell where it belongs, provided that it has
trained neither of them meanwhile: whoever trains a model makes it its own. So those few sit out for a while. Afterwards they
lose more than the others; until they have caught up, which side of the mean their losses lie on does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from fedgwc.algorithms.fedgwc_state import Cluster, Verdict
from fedgwc.algorithms.learning import how_many
from fedgwc.algorithms.membership import with_members
from fedgwc.algorithms.proposals import proposed
from fedgwc.core import Engine, Floats, Ids, TooFewReplies, losses_under, stacked
from fedgwc.cuts import TOO_FEW_IN_ONE, Cut, best_cut

if TYPE_CHECKING:
    from fedgwc.algorithms.fedgwc import FedGWC

NEAR = 0.2  # of the clients on either side of a cut, at most: who wait, because they may belong to the other one
HALFWAY = 0.5  # from where the two sides meet to a side's median client; beyond that nobody waits
PARTED = 30  # times that the others must have trained until two models serve different clients
CLEAR = 5.0  # gain of two groups among those who waited, by how much better one model serves them than the other
LATE = 2  # windows in which they catch up: the one in which they waited, and another
NOBODY: Ids = np.array([], np.int64)


def near(cut: Cut) -> Ids:
    """The clients that stand near the other side of a cut, by their places."""
    sides = [np.flatnonzero(cut.labels == y) for y in (0, 1)]
    medians = [np.median(cut.on_line[side]) for side in sides]
    away = abs(cut.on_line - np.mean(medians)) / max(float(medians[1] - medians[0]) / 2, 1e-12)  # 0: where they meet, 1: median
    away[(cut.on_line > np.mean(medians)) != (cut.labels == 1)] = 0.0  # beyond it already
    nearest = [side[np.argsort(away[side], kind="stable")][: int(NEAR * len(side))] for side in sides]
    some = np.sort(np.concatenate([few[away[few] < HALFWAY] for few in nearest]))
    return some if len(some) >= TOO_FEW_IN_ONE else NOBODY  # of fewer nobody could tell whether they are in two groups


def looked_again(
    a: FedGWC, clusters: Sequence[Cluster], engine: Engine, n_clients: int, number: int
) -> tuple[list[Cluster], list[Verdict]]:
    """Clusters after round `number`, with clients that have waited long enough where they are served best."""
    after, verdicts = list(clusters), []
    unsure = [i for i, c in enumerate(clusters) if c.waiting is not None]
    for i, j in combinations(unsure, 2):
        sides = clusters[i], clusters[j]
        if sides[0].parent == sides[1].parent and all(_has_parted(a, c, n_clients, number) for c in sides):
            members, told = _regrouped(a, sides, engine)
            after[i], after[j] = (_joined(a, c, m, _waiting(sides)) for c, m in zip(sides, members, strict=True))
            verdicts += told
    return after, verdicts


def _has_parted(a: FedGWC, c: Cluster, n_clients: int, number: int) -> bool:
    """By rounds, not by who has answered: whatever happens, nobody waits for ever."""
    there = len(c.members) - len(_waiting([c]))
    return (number - c.born) * a.cohort_of(there, n_clients) >= PARTED * there


def _waiting(sides: Sequence[Cluster]) -> Ids:
    return np.concatenate([NOBODY if c.waiting is None else c.waiting for c in sides])


def _regrouped(a: FedGWC, sides: tuple[Cluster, Cluster], engine: Engine) -> tuple[list[Ids], list[Verdict]]:
    """The members of both sides when everybody who waited has said where it is served better, and what to tell of it."""
    asked = _waiting(sides)
    try:
        clients, losses = losses_under(stacked([c.server.theta for c in sides]), asked, engine)
    except TooFewReplies:
        return [c.members for c in sides], []
    known = np.isin(clients, asked) & np.isfinite(losses).all(1)  # others may have stood in
    clients = clients[known]
    side = np.isin(clients, sides[1].members).astype(np.int64)
    moving = better_served(side, losses[known]) != side
    gone = [clients[moving & (side == y)] for y in (0, 1)]
    members = [np.union1d(np.setdiff1d(c.members, gone[y]), gone[1 - y]) for y, c in enumerate(sides)]
    if min(map(len, members)) < a.min_size:
        return [c.members for c in sides], []
    told = [
        Verdict(c.id, len(c.members), "moved", sizes=(len(c.members) - len(gone[y]), len(gone[y])), to=sides[1 - y].id)
        for y, c in enumerate(sides)
        if len(gone[y])
    ]
    return members, told


def better_served(side: Ids, losses: Floats) -> Ids:
    """[n] the sides, 0 or 1, on which clients are better off, of those where they are and `losses` [n, 2] under either model.

    The model of the larger side may be better for everybody. So what counts is not which loss is lower but by how much. By that
    clients must fall into two groups, and most of either side must be where they belong; otherwise all stay.
    """
    more = losses[:, 0] - losses[:, 1]
    spread = more.std() if len(more) else 0.0
    cut = best_cut(more[:, None] / spread, 1) if spread > 0 else None
    if cut is None or cut.gain < CLEAR:
        return side
    served = cut.labels if more[cut.labels == 1].mean() > more[cut.labels == 0].mean() else 1 - cut.labels
    if len(np.unique(side)) < 2:  # nobody tells what is usual on the other side
        served = np.where((more > 0) == (served == 1), served, side)
    return served if all((served[side == y] == y).mean() > 0.5 for y in np.unique(side)) else side


def _joined(a: FedGWC, c: Cluster, members: Ids, waited: Ids) -> Cluster:
    """A side with these members, among whom nobody waits any more. If they are others now, it would be cut elsewhere."""
    same, c = np.array_equal(members, c.members), replace(with_members(c, members), waiting=None)
    if not a.is_divisible(len(members)):
        return replace(c, late=None)  # no window of theirs ends
    late = np.where(np.isin(members, waited), LATE, 0)
    c = replace(c, late=late if c.late is None else np.maximum(late, c.late))
    if same:
        return c
    cut = proposed(a, c)[0]
    ripe = how_many(c.visits >= a.visits_wanted(c.attempts, c.by_pairs))
    return replace(c, ripe=ripe, cut=None if cut is None else cut.labels)
