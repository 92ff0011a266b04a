"""After groups were divided: clients near the cut wait until the two sides have parted, and then say whose model serves them.

A cut is made of what losses tell while everybody shares one model, and has a few clients on the wrong side, nearly always some
of those nearest to it. Once the two models differ, a client's losses under both tell where it belongs, provided that it has
trained neither of them meanwhile: whoever trains a model makes it its own. So those few do not train until they are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from fedgwc.algorithms.fedgwc_state import Cluster, FedGWCState, Verdict
from fedgwc.algorithms.learning import how_many
from fedgwc.algorithms.membership import with_members
from fedgwc.algorithms.proposals import proposed
from fedgwc.core import Engine, Ids, losses_under, stacked
from fedgwc.cuts import Cut

if TYPE_CHECKING:
    from fedgwc.algorithms.fedgwc import FedGWC

NEAR = 0.2  # of the clients on either side of a cut: who wait, because they may belong to the other one


def near(cut: Cut) -> Ids:
    """The clients that stand nearest to the other side of a cut, by their places."""
    sides = [np.flatnonzero(cut.labels == y) for y in (0, 1)]
    towards = [side[np.argsort(sign * cut.on_line[side], kind="stable")] for side, sign in zip(sides, (-1, 1), strict=True)]
    return np.sort(np.concatenate([side[: int(NEAR * len(side))] for side in towards]))


def looked_again(a: FedGWC, state: FedGWCState, engine: Engine) -> tuple[FedGWCState, list[Verdict]]:
    """The state before a round, with clients that have waited long enough where they are served best."""
    verdicts: list[Verdict] = []
    for i, j in _parted(a, state):
        sides = state.clusters[i], state.clusters[j]
        gone = [_better_served(c, other, engine) for c, other in (sides, sides[::-1])]
        members = [np.union1d(np.setdiff1d(c.members, left), came) for c, left, came in zip(sides, gone, gone[::-1], strict=True)]
        if min(map(len, members)) < a.min_size:
            gone, members = [np.array([], np.int64)] * 2, [c.members for c in sides]
        clusters = list(state.clusters)
        clusters[i], clusters[j] = (_sure(a, c, m) for c, m in zip(sides, members, strict=True))
        state = replace(state, clusters=tuple(clusters))
        for c, left, to in zip(sides, gone, sides[::-1], strict=True):
            if len(left):
                sizes = len(c.members) - len(left), len(left)
                verdicts.append(Verdict(c.id, len(c.members), "moved", sizes=sizes, to=to.id))
    return state, verdicts


def _parted(a: FedGWC, state: FedGWCState) -> Iterator[tuple[int, int]]:
    """The places of the two sides of divisions that have both trained for a whole window, or where nobody waits any more."""
    unsure = [i for i, c in enumerate(state.clusters) if c.waiting is not None]
    for i, j in combinations(unsure, 2):
        sides = state.clusters[i], state.clusters[j]
        if sides[0].parent == sides[1].parent:
            waiting = sum(c.waiting.size for c in sides if c.waiting is not None)
            if not waiting or all(map(a.window_is_over, sides)):
                yield i, j


def _better_served(c: Cluster, other: Cluster, engine: Engine) -> Ids:
    """Those of a side's waiting clients whose losses are lower under the other side's model; who says nothing stays."""
    nobody = np.array([], np.int64)
    if c.waiting is None or not c.waiting.size:
        return nobody
    try:
        clients, losses = losses_under(stacked([c.server.theta, other.server.theta]), c.waiting, engine)
    except NotImplementedError:  # clients that tell nobody
        return nobody
    better = losses[:, 1] < losses[:, 0]
    return np.intersect1d(clients[better], c.waiting)


def _sure(a: FedGWC, c: Cluster, members: Ids) -> Cluster:
    """A side where nobody waits any more. If its members are others now, it would be cut elsewhere."""
    c = replace(c, waiting=None)
    if np.array_equal(members, c.members):
        return c
    c = with_members(c, members)
    cut = proposed(a, c)[0] if a.is_divisible(len(members)) else None
    ripe = how_many(c.visits >= a.visits_wanted(c.attempts, c.by_pairs))
    return replace(c, ripe=ripe, cut=None if cut is None else cut.labels)
