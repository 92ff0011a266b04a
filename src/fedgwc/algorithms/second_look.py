"""After groups were divided: clients near the cut wait until the two sides have parted, and then say whose model serves them.

A cut is made of what losses tell while everybody shares one model, and has a few clients on the wrong side, nearly always some
of those nearest to it. Once the two models differ, a client's losses under both tell where it belongs, provided that it has
trained neither of them meanwhile: whoever trains a model makes it its own. So those few sit out one window of rounds. In the
next they lose more than the others, until they have caught up; they count as absent in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from fedgwc.algorithms.fedgwc_state import Cluster, FedGWCState, Verdict
from fedgwc.algorithms.learning import how_many
from fedgwc.algorithms.membership import with_members
from fedgwc.algorithms.proposals import proposed
from fedgwc.core import Engine, Floats, Ids, losses_under, stacked
from fedgwc.cuts import Cut

if TYPE_CHECKING:
    from fedgwc.algorithms.fedgwc import FedGWC

NEAR = 0.2  # of the clients on either side of a cut, at most: who wait, because they may belong to the other one
HALFWAY = 0.5  # from where the two sides meet to a side's median client; beyond that nobody waits
LATE = 2  # windows: the one in which they waited, and another one to catch up
NOBODY: Ids = np.array([], np.int64)


def near(cut: Cut) -> Ids:
    """The clients that stand near the other side of a cut, by their places."""
    sides = [np.flatnonzero(cut.labels == y) for y in (0, 1)]
    medians = [np.median(cut.on_line[side]) for side in sides]
    away = abs(cut.on_line - np.mean(medians)) / max(float(medians[1] - medians[0]) / 2, 1e-12)  # 0: where they meet, 1: median
    away[(cut.on_line > np.mean(medians)) != (cut.labels == 1)] = 0.0  # beyond it already
    nearest = [side[np.argsort(away[side], kind="stable")][: int(NEAR * len(side))] for side in sides]
    return np.sort(np.concatenate([some[away[some] < HALFWAY] for some in nearest]))


def looked_again(a: FedGWC, state: FedGWCState, engine: Engine) -> tuple[FedGWCState, list[Verdict]]:
    """The state before a round, with clients that have waited long enough where they are served best."""
    verdicts: list[Verdict] = []
    for i, j in _parted(a, state):
        sides, clusters = (state.clusters[i], state.clusters[j]), list(state.clusters)
        members, told = _regrouped(a, sides, engine)
        waited = _waiting(sides)
        clusters[i], clusters[j] = (_joined(a, c, m, waited) for c, m in zip(sides, members, strict=True))
        state = replace(state, clusters=tuple(clusters))
        verdicts += told
    return state, verdicts


def _parted(a: FedGWC, state: FedGWCState) -> Iterator[tuple[int, int]]:
    """The places of the two sides of divisions that have both trained for a window, or where nobody waits any more."""
    unsure = [i for i, c in enumerate(state.clusters) if c.waiting is not None]
    for i, j in combinations(unsure, 2):
        sides = state.clusters[i], state.clusters[j]
        if sides[0].parent == sides[1].parent and (not _waiting(sides).size or all(map(a.window_is_over, sides))):
            yield i, j


def _waiting(sides: Sequence[Cluster]) -> Ids:
    return np.concatenate([NOBODY if c.waiting is None else c.waiting for c in sides])


def _regrouped(a: FedGWC, sides: tuple[Cluster, Cluster], engine: Engine) -> tuple[list[Ids], list[Verdict]]:
    """The members of both sides when everybody who waited has said where it is served better, and what to tell of it."""
    asked = _waiting(sides)
    try:
        clients, losses = losses_under(stacked([c.server.theta for c in sides]), asked, engine)
    except NotImplementedError:  # clients that tell nobody
        return [c.members for c in sides], []
    known = np.isin(clients, asked)  # others may have stood in
    clients, losses = clients[known], losses[known]
    side = np.isin(clients, sides[1].members).astype(np.int64)
    moving = better_served(side, losses) != side
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

    The model of the larger side may be better for everybody. So what counts is not which loss is lower but by how much: whoever
    is nearer to what the other side's median client says belongs there.
    """
    more = losses[:, 0] - losses[:, 1]
    known = np.isfinite(more)
    said = [more[known & (side == y)] for y in (0, 1)]
    if not all(map(len, said)):
        return side
    one, other = (float(np.median(x)) for x in said)
    if one >= other:  # the two models have not parted
        return side
    return np.where(known, np.where(more < (one + other) / 2, 0, 1), side)


def _joined(a: FedGWC, c: Cluster, members: Ids, waited: Ids) -> Cluster:
    """A side with these members, among whom nobody waits any more. If they are others now, it would be cut elsewhere."""
    late = np.where(np.isin(members, waited), LATE, 0)
    if np.array_equal(members, c.members):
        return replace(c, waiting=None, late=late)
    c = replace(with_members(c, members), waiting=None, late=late)
    cut = proposed(a, c)[0] if a.is_divisible(len(members)) else None
    ripe = how_many(c.visits >= a.visits_wanted(c.attempts, c.by_pairs))
    return replace(c, ripe=ripe, cut=None if cut is None else cut.labels)
