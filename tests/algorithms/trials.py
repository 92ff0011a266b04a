"""Divisions on trial, and what came of them: made by hand, or by a run from its beginning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fake_engine import FakeEngine
from numpy.typing import NDArray

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.auto.algorithm import FedGWC
from fedgwc.algorithms.auto.beginnings import children
from fedgwc.algorithms.auto.second_look import resolve_trials
from fedgwc.algorithms.auto.state import Cluster, FedGWCState, Split, Verdict
from fedgwc.algorithms.auto.verdicts import NO_ONE_WAITS, Waiting
from fedgwc.core.types import Ids
from fedgwc.runs.loop import rounds

ASK = FedGWC(rate=0.2, second_look=True)
by_pairs_and_by_client = pytest.mark.parametrize("settings", [{}, {"pairs_up_to": 2}], ids=["by pairs", "by client"])


def ids(*clients: int) -> Ids:
    return np.array(clients, np.int64)


def squared(points: list[float]) -> NDArray[np.float64]:
    """Squared distances between points on a line."""
    return np.square(np.subtract.outer(points, points))


# A cluster with all its numbers

FIVE = ids(0, 2, 4, 6, 8)


def known(algorithm: FedGWC = ASK, real: Any = np.float64, whole: Any = np.int64) -> Cluster:
    """Five clients at 0, 3, 50, 60 and 6 on a line, and numbers that tell places apart."""
    [c] = algorithm.init(torch.zeros(1), 5).clusters
    K = np.arange(5.0)
    pairs = (10 * K[:, None] + K if c.by_pairs else K) + 1
    means: dict[str, Any] = {name: (pairs + 100 * i).astype(real) for i, name in enumerate(("P", "sides", "spreads"))}
    if c.by_pairs:
        means |= {"distances": squared([0, 3, 50, 60, 6]).astype(real), "echo": (pairs - 7).astype(real), "level": K + 0.5}
    else:
        means["paths"] = np.stack([K, K**2], 1)
    c = replace(c, members=FIVE, visits=pairs.astype(whole), gamma=K + 1, gamma2=K + 2, late=ids(0, 2, 1, 0, 2), **means)
    return replace(c, before=ids(1, 2), cut=ids(0, 0, 1, 1, 1), told=3.0, told2=4.0, ripe=20, attempts=2)


# A division by hand

SIDE = np.repeat([0, 1], 25)
WAITING = np.concatenate([np.arange(20, 25), np.arange(45, 50)])
WAIT = Waiting(WAITING, np.setdiff1d(WAITING, [24, 49]))  # four witnesses of either side, and one who is unsure
CLEARLY = 1000.0  # deviations between two sides within which nobody differs: that is the most that is told
TIMES = 5  # rounds, in which the 20 of a side who do not wait train once each, 4 at a time
FIRST, LAST = 10 * TIMES, 40 * TIMES  # in which they are asked


def but(*misplaced: int) -> NDArray[Any]:
    """The kinds of 50 clients, if all but these are where they belong."""
    return SIDE ^ np.isin(np.arange(50), misplaced)


def halves(*misplaced: int) -> list[list[int]]:
    """The members of the two sides once these have changed sides."""
    return [np.flatnonzero(but(*misplaced) == y).tolist() for y in (0, 1)]


def divided(waiting: Waiting = WAIT, side: Ids = SIDE) -> FedGWCState:
    """50 clients on the two sides of a cut, whose models have become 0 and 1."""
    state = ASK.init(torch.zeros(1, dtype=torch.float64), 50)
    root = replace(state.clusters[0], distances=squared((side + 0.1 * np.sin(np.arange(50))).tolist()))
    return replace(state, clusters=in_two(root, side, 1, waiting), splits=(no_more(root, side),), n_born=3)


def no_more(whole: Cluster, labels: Ids) -> Split:
    """The split of a cluster in round 0, some rounds later."""
    return replace(Split.of(whole, labels, ended=0), P=None, distances=None, paths=None, echo=None)


def in_two(whole: Cluster, labels: Ids, first: int, waiting: Waiting) -> tuple[Cluster, ...]:
    sides = []
    for y, c in enumerate(children(ASK, whole, labels, {}, first, 0, waiting)):
        K = len(c.members)
        met: dict[str, Any] = {"visits": np.full((K, K), 20), "ripe": K * (K - 1)}
        sides.append(replace(c, server=Server(torch.full((1,), float(y), dtype=torch.float64)), **met))
    return tuple(sides)


AGAIN = np.repeat([0, 1], [13, 12])  # the sides of 25 who are divided again
TEN = np.concatenate([np.arange(8, 13), np.arange(20, 25)])  # of whom these wait, and are witnesses but for the last


def two_trials() -> FedGWCState:
    """Of 0-24 and of 25-49, who were divided before; their sides take turns."""
    state = divided(NO_ONE_WAITS)
    waiting = Waiting(TEN, np.setdiff1d(TEN, [12, 24]))
    left, right = (in_two(c, AGAIN, first, waiting) for c, first in zip(state.clusters, (3, 5), strict=True))
    splits = (*state.splits, *(no_more(c, AGAIN) for c in state.clusters))
    return replace(state, clusters=(left[0], right[0], left[1], right[1]), splits=splits, n_born=7)


def look(algorithm: FedGWC, state: FedGWCState, engine: FakeEngine, number: int = FIRST) -> tuple[FedGWCState, list[Verdict]]:
    clusters, splits, verdicts = resolve_trials(algorithm, state.clusters, state.splits, engine, 50, number)
    return replace(state, clusters=tuple(clusters), splits=tuple(splits)), verdicts


def until_nobody_waits(algorithm: FedGWC, state: FedGWCState, engine: FakeEngine) -> tuple[list[int], FedGWCState]:
    """The rounds in which somebody was asked, and what came of it."""
    when, number = [], 0
    while any(waiting_in(state)) and number < 300:
        number, asked = number + 1, len(engine.asked)
        state, _ = look(algorithm, state, engine, number)
        when += [number] * (len(engine.asked) - asked)
    return when, state


# A run from its beginning

KIND = np.repeat([0, 1], [30, 32])  # of which the last two come later
ODD = 29  # loses more like the other kind
FORCED = {"gain": -1000.0, "doubt": 12.0, "contrast": -1.0, "agreement": -1.0, "min_size": 15}  # wherever 15 are cut off
TRIALS = "groups", "moved", "confirmed", "rejoined"


def heard(**more: Any) -> FakeEngine:
    """Losses of 1 of the first kind, of 2 of the other, and of some clients of either kind between these."""
    level = 1.0 + KIND
    level[26:33] = [1.4, 1.4, 1.4, 1.6, 1.6, 1.6, 1.6]
    return FakeEngine(KIND, **{"level": level} | more)


def play(n_rounds: int, engine: FakeEngine | None = None, **settings: Any) -> tuple[FedGWC, list[FedGWCState]]:
    algorithm = FedGWC(**{"rate": 1.0, "n_max": 2, "min_size": 8, "second_look": True} | settings)
    start = torch.zeros(1, dtype=torch.float64)
    return algorithm, [s for _, s in rounds(algorithm, engine or heard(), start, 60, n_rounds, seed=1)]


def told(states: Sequence[FedGWCState], *reasons: str) -> list[tuple[int, int, str]]:
    """(round, cluster, reason) of all verdicts, or of some."""
    every = [(t, v.cluster, v.reason) for t, s in enumerate(states, 1) for v in s.verdicts]
    return [row for row in every if not reasons or row[2] in reasons]


# What a state looks like


def members(state: FedGWCState) -> list[list[int]]:
    return [c.members.tolist() for c in state.clusters]


def waiting_in(state: FedGWCState) -> list[list[int] | None]:
    return [None if c.waiting is None else c.waiting.tolist() for c in state.clusters]


def nobody_waits(state: FedGWCState, late: Ids = WAITING) -> None:
    for c in state.clusters:
        assert (c.waiting, c.witnesses) == (None, None)
        assert c.late is not None
        assert c.late.tolist() == np.where(np.isin(c.members, late), 3, 0).tolist()


def sound(algorithm: FedGWC, state: FedGWCState) -> bool:
    """Everybody is in one leaf, everybody else's parent is one that was divided, and all have different numbers."""
    tree = algorithm.tree(state)
    inner = {row["id"]: row for row in tree if row["ended"] is not None}
    assert sorted(k for row in tree if row["ended"] is None for k in row["members"]) == list(range(len(state.sampled)))
    assert len({row["id"] for row in tree}) == len(tree)
    assert all(row["id"] < state.n_born for row in tree)
    for row in tree:
        assert (row["parent"] in inner) == (row["id"] > 0)
        assert row["parent"] is None or row["born"] == inner[row["parent"]]["ended"]
    assert all(sum(row["parent"] == node for row in tree) == 2 for node in inner)
    return True
