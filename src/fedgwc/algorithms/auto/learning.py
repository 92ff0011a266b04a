"""Learning from a round: clusters' models, statistics of losses, and P.

P has the other matrices beside it.

Clusters with equally large cohorts are computed together; `stacks.py` says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.auto.readings import Readings, bounded
from fedgwc.algorithms.auto.settings import Settings
from fedgwc.algorithms.auto.stacks import CohortReadings, cohorts_alike, count, entries, move
from fedgwc.algorithms.auto.state import Cluster, changed
from fedgwc.algorithms.fedgwc.interactions import check_once, check_rewards
from fedgwc.core.types import Floats, Ids, Updates

USUAL = 0.1  # step of the running mean that gives a client's usual first loss
MOST = 1.0  # a loss counts as at most this much lower or higher than usual, in logarithms; true ones hardly ever differ more


def learnt(a: Settings, clusters: Sequence[Cluster], updates: Updates, own: Ids) -> list[Cluster]:
    """The clusters after a round. `own` [n] is the index of each answering client's cluster.

    With fewer than 3 answers only the model changes: they say nothing about interactions.
    """
    servers = a.server.steps([c.server for c in clusters], updates, own)
    changes: list[dict[str, Any]] = [{"server": server} for server in servers]
    for i in set(own.tolist()):
        changes[i]["before"] = None  # the model has changed; who changed it is set below if their losses are known
    check_once(updates.clients)
    if updates.rewards is not None:
        came = np.flatnonzero(updates.rewards.isfinite())
        updates, own = updates.rows(came), own[came]
    # Clusters that differ in the type of their matrices are computed apart.
    kinds = [(c.P.dtype, c.echo is None) for c in clusters]
    for places, rows in cohorts_alike(own, kinds, least=3):
        some = [clusters[i] for i in places]
        reported = _reported(a, updates, rows, some[0])
        met = _running_means(a, some, updates.clients[rows], reported)
        for i, cohort, whole, adrift, means in zip(
            places, rows, reported.whole.tolist(), reported.adrift.tolist(), met, strict=True
        ):
            late = clusters[i].late
            if late is not None and updates.rewards is None:
                at = clusters[i].members.searchsorted(updates.clients[cohort])
                whole, adrift = _without_late(a, updates, cohort[late[at] == 0])
            changes[i] |= _window_statistics(a, clusters[i], whole, adrift) | means
    return [changed(c, new) for c, new in zip(clusters, changes, strict=True)]


def _reported(a: Settings, updates: Updates, rows: Ids, one: Cluster) -> CohortReadings:
    """Compute the statistics of equally large cohorts.

    Their answers are `rows` [C, n]; `one` of their clusters shows what all of them keep.
    """
    if updates.rewards is not None:  # computed by the clients themselves
        given = check_rewards(updates.rewards.double().numpy()[rows])
        known = updates.readings  # the same for a whole cohort, unless a replay mixes cohorts
        whole = np.full((len(rows), 4), np.nan) if known is None else known.double().numpy()[rows].mean(1)
        adrift = (whole[:, 2] >= (1 + a.drift) * whole[:, 3]) & (whole[:, 2] > 0)  # judged by the means, as nothing else is known
        return CohortReadings(whole, adrift, given[None])
    seen = Readings(updates.losses.numpy()[rows])
    whole = np.array([*seen.variances(), *seen.first_losses()]).T
    each = [seen.rewards()]
    each += [seen.sides(), seen.spreads()] if one.sides is not None else []
    return CohortReadings(whole, seen.drift(1 + a.drift), np.array(each), None if one.echo is None else seen.levels())


def _without_late(a: Settings, updates: Updates, rows: Ids) -> tuple[list[float], bool]:
    """Compute statistics of a cohort without its late members.

    These lose more and differ for that reason alone.
    """
    if len(rows) < 3:
        return [math.nan], False
    seen = Readings(updates.losses.numpy()[rows])
    return [*map(float, (*seen.variances(), *seen.first_losses()))], bool(seen.drift(1 + a.drift))


def _window_statistics(a: Settings, c: Cluster, whole: Sequence[float], adrift: bool) -> dict[str, Any]:
    """The window's statistics with one more cohort. Rounds are counted, because a single odd client is not in half of them."""
    if not math.isfinite(sum(whole)):
        return {}
    between, within, first, second = whole
    return {
        "between": c.between + between,
        "within": c.within + within,
        "first": c.first + first,
        "second": c.second + second,
        "heard": c.heard + 1,
        "apart": c.apart + (between >= (1 + a.contrast) * within),
        "adrift": c.adrift + adrift,
    }


def _running_means(a: Settings, clusters: Sequence[Cluster], clients: Ids, reported: CohortReadings) -> list[dict[str, Any]]:
    """Eq. 2 and Eq. 3 for the members that were sampled [C, n]. Matrices are written in place, other changes are returned."""
    rewards = reported.each[0]
    by_pairs, sizes = clusters[0].by_pairs, np.array([len(c.members) for c in clusters])
    at = np.array([c.members.searchsorted(cohort) for c, cohort in zip(clusters, clients, strict=True)])  # [C, n]
    pairs, column = (entries(at, sizes), np.s_[..., None]) if by_pairs else (at, np.s_[...])
    visits = count([c.visits for c in clusters], pairs)  # [C, n, n], or by client [C, n]
    alpha = 1 / visits
    views = [[getattr(c, view) for c in clusters] for view in ("P", "sides", "spreads")[: len(reported.each)]]
    (old, *_), (new, *_) = move(views, pairs, reported.each[column], alpha)
    gammas, gammas2 = [c.gamma.copy() for c in clusters], [c.gamma2.copy() for c in clusters]
    by_client = alpha.diagonal(0, 1, 2) if by_pairs else alpha  # [C, n]
    move([gammas, gammas2], at, np.array([rewards, rewards**2]), by_client)
    change = ((new - old) ** 2).reshape(len(clusters), -1)
    mse = change.sum(1) / [c.P.size for c in clusters]
    heard = [{}] * len(clusters) if reported.levels is None else _echoes(clusters, at, reported.levels)
    met = []
    for c, n, gamma, gamma2, m, echo in zip(clusters, visits, gammas, gammas2, mse.tolist(), heard, strict=True):
        ripe = c.ripe + how_many(n == a.visits_wanted(by_pairs))
        met.append({"gamma": gamma, "gamma2": gamma2, "mse": m, "ripe": ripe, **echo})
    return met


def _echoes(clusters: Sequence[Cluster], at: Ids, levels: Floats) -> list[dict[str, Any]]:
    """Measure how much the last round's clients helped this round's.

    The first batch of this round's clients meets the model that the others made.

    at and levels [C, n]. The help is how much lower than usual a client's first loss is, minus the cohort's mean of that. The
    matrices of echoes are written in place, other changes are returned.
    """
    kept = [(c.echo, c.level, c.before, c) for c in clusters if c.echo is not None and c.level is not None]
    usual = np.array([level[k] for (_, level, _, _), k in zip(kept, at, strict=True)])
    known = np.isfinite(usual + levels)
    lower = bounded(np.where(known, usual - levels, 0.0)).clip(-MOST, MOST)
    lower = np.where(known, lower - (lower * known).sum(1, keepdims=True) / np.maximum(known.sum(1, keepdims=True), 1), 0.0)
    usual = np.where(known, usual + USUAL * (levels - usual), np.where(np.isfinite(levels), levels, usual))
    heard = []
    for (echo, level, before, c), k, now, more in zip(kept, at, usual, lower, strict=True):
        foretold = {}
        if before is not None:
            pairs = k[:, None] * len(echo) + before
            echo.put(pairs, echo.take(pairs) + more[:, None])
            if c.cut is not None:
                told = _prediction_score(more, c.cut, k, before)
                foretold = {"told": c.told + told, "told2": c.told2 + told**2}
        level = level.copy()
        level[k] = now
        heard.append({"level": level, "before": k, **foretold})
    return heard


def _prediction_score(more: Floats, cut: Ids, k: Ids, before: Ids) -> float:
    """Score how well a cut [K] predicts who helps whom.

    How much more the clients `k` [n] were helped if more of those who trained `before` [m] are on their side.

    What counts is the share of those on a client's side minus the share expected by the size of that side: a client that
    learns faster than others gains from anybody, and a large side has many of them in every round.
    """
    others = k[:, None] != before
    same = (others & (cut[k][:, None] == cut[before])).sum(1) / np.maximum(others.sum(1), 1)
    expected = (np.bincount(cut)[cut[k]] - 1) / (len(cut) - 1)
    return float((more * (same - expected)).sum())


def how_many(flags: NDArray[np.bool_]) -> int:
    """The number of true pairs [K, K], without the diagonal, or of true clients [K]."""
    return int(np.count_nonzero(flags) - (np.count_nonzero(flags.diagonal()) if flags.ndim == 2 else 0))
