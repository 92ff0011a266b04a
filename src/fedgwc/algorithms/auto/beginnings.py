"""Begin clusters: with nothing known, with the next window, or as children of one that is divided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.auto.cuts import Cut
from fedgwc.algorithms.auto.proposals import proposed
from fedgwc.algorithms.auto.settings import Settings
from fedgwc.algorithms.auto.state import Cluster
from fedgwc.algorithms.auto.verdicts import NO_ONE_WAITS, Waiting
from fedgwc.algorithms.auto.windows import counted_down, submatrices
from fedgwc.algorithms.perception import LARGE
from fedgwc.core.types import Ids

# What is known of a cluster for one window only; everything else goes on.
OF_ONE_WINDOW = (
    *("P", "visits", "gamma", "gamma2", "ripe", "sides", "spreads"),
    *("between", "within", "first", "second", "heard", "apart", "adrift", "waiting", "witnesses"),
)


def fresh(
    a: Settings, id: int, parent: int | None, born: int, members: Ids, server: Server, scores: dict[int, float], by_pairs: bool
) -> Cluster:
    """A cluster of whose members nothing is known."""
    K = len(members)
    shape = (K, K) if by_pairs else (K,)
    # A pair meets only a few times in a window.
    real, whole = (np.float32, np.int16) if by_pairs and K > LARGE else (np.float64, np.int64)
    # Zeros take no memory until they are written to, and by then the previous window's matrices are freed.
    P = np.zeros(shape, real)
    sides, spreads = np.zeros((2, *shape), real) if a.sides else (None, None)
    listens = a.echo and sides is not None and by_pairs
    echo, level = (np.zeros(shape, real), np.full(K, np.nan)) if listens else (None, None)
    visits = np.zeros(shape, whole)
    gammas = np.zeros(K), np.zeros(K)
    cluster = Cluster(id, parent, born, members, server, P, visits, *gammas, scores=scores, sides=sides, spreads=spreads)
    return replace(cluster, echo=echo, level=level)


def next_window(a: Settings, c: Cluster) -> Cluster:
    """The same cluster with empty means; what windows add up to goes on."""
    begun = fresh(a, c.id, c.parent, c.born, c.members, c.server, c.scores, c.by_pairs)
    empty = {name: getattr(begun, name) for name in OF_ONE_WINDOW}
    return replace(c, **empty, late=counted_down(c.late), differed=c.has_differed)


def children(
    a: Settings,
    c: Cluster,
    labels: Ids,
    scores: dict[int, float],
    first: int,
    number: int,
    waiting: Waiting = NO_ONE_WAITS,
) -> list[Cluster]:
    """A cluster per label, with the parent's server and what is known of its members; `first` is the id of the first one."""
    born = []
    for y in range(int(labels.max()) + 1):
        at = np.flatnonzero(labels == y)
        child = fresh(a, first + y, c.id, number, c.members[at], c.server, scores, c.by_pairs)
        if known := submatrices(c, at):
            child = replace(child, **known)
            if a.is_divisible(len(at)):
                # The child has had no window yet: whether its clients differ is taken from the parent's.
                child = with_cut(child, proposed(a, replace(child, heard=1, differed=c.differs))[0])
                child = replace(child, late=counted_down(None if c.late is None else c.late[at]))
        if len(waiting.clients):
            sit_out, witnesses = (c.members[np.intersect1d(at, some)] for some in waiting)
            child = replace(child, waiting=sit_out, witnesses=witnesses)
        born.append(child)
    return born


def with_cut(c: Cluster, cut: Cut | None) -> Cluster:
    return replace(c, cut=None if cut is None else cut.labels)
