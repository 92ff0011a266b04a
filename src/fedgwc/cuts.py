"""Where a cloud of clients falls into two: the line along which groups describe it best, cut where they are farthest apart.

Clients may well differ most by something that has no groups, and groups then show along another line. So the whole cloud is
described by normals that share one covariance, which may be long wherever it likes, with their centres on one line. In units
in which the cloud is round, everything square to that line is one normal, with groups or without, and the search is for the
line along which clients look least like one normal and most like two, three or more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgwc.core import Floats, Ids
from fedgwc.spectral import davies_bouldin

LINES = 12  # that EM starts from, beside the axes
TWO_AT = 0.1, 0.3, 0.5, 0.7, 0.9  # shares of the clients after which they are cut in two; more groups begin equally large
FEW_STEPS, STEPS = 5, 100  # of EM: from every start, and from the few that are best by then
BEST = 3
ENOUGH = 2000  # clients that tell which these are
NARROWEST = 1e-6  # a group's variance, where that of the cloud is 1
TOO_FEW = 10  # clients, below which any are in groups by chance: they gain nothing ...
TOO_FEW_IN_ONE = 6  # ... and in a single axis below this
MOST_ASIDE = 0.1  # of the clients: what is left of a few is soon in groups by chance


@dataclass(frozen=True)
class Cut:
    labels: Ids  # [K] 0 and 1, 0 for the first client
    score: float  # Davies-Bouldin of the two sides on the line; lower is clearer
    line: Floats  # [m] the line's direction, from 0 to 1
    gain: float  # how much better every group beyond the first describes the cloud, on the scale of BIC
    on_line: Floats  # [K] where clients stand on it


@dataclass(frozen=True)
class Groups:
    """R descriptions of one round cloud [K, m] by k groups, each along a line of its own."""

    line: Floats  # [R, m]
    share: Floats  # [R, k]
    centre: Floats  # [R, k] on the line
    variance: Floats  # [R] of all of them along the line

    def rows(self, at: list[int]) -> Groups:
        return Groups(self.line[at], self.share[at], self.centre[at], self.variance[at])

    def memberships(self, points: Floats) -> tuple[Floats, Floats]:
        """([R] log-likelihoods beyond that of one group, [R, k, K] how likely each point is in each group)."""
        x = (self.line @ points.T)[:, None]
        log = np.log(self.share)[:, :, None] - (x - self.centre[:, :, None]) ** 2 / (2 * self.variance[:, None, None])
        most = log.max(1, keepdims=True)
        odds = np.exp(log - most)
        total = odds.sum(1, keepdims=True)
        likelihood = (most + np.log(total) + x**2 / 2).sum((1, 2)) - points.shape[0] * np.log(self.variance) / 2
        return likelihood, odds / total

    def ahead(self, points: Floats) -> NDArray[np.bool_]:
        """Who is in a group beyond the widest gap, by the first description."""
        group = self.memberships(points)[1][0].argmax(0)
        order = sorted(set(group.tolist()), key=lambda g: self.centre[0][g])  # a group that is nobody's has no place
        if len(order) < 2:
            return np.zeros(len(points), bool)
        gap = int(np.diff(self.centre[0][order]).argmax())
        return np.isin(group, order[gap + 1 :])


def best_cut(points: Floats, min_size: int, n_max: int = 2) -> Cut | None:
    """The best division of points [K, m], axes of variance 1, in two sides of at least `min_size`; None where there is none.

    The sides may consist of several groups, up to `n_max` together. Fewer points than `min_size` are none: they are put
    aside, the others are looked at again, and in the end they go where they fit best. Where these would be too many, the
    next best division counts, and where all groups are too small, a division that gains nothing.

    >>> best_cut(np.array([[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]]), 2).labels.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    there = np.arange(len(points))
    least = max(2 * min_size, (1 - MOST_ASIDE) * len(points))
    while points.shape[1] and len(there) >= least:
        middle, units = _round(points[there])
        cloud = (points - middle) @ units
        for groups, gain in sorted(_described(cloud[there], n_max), key=lambda each: -each[1]):
            m = groups.line.shape[1]
            ahead = groups.ahead(cloud[:, :m])
            n = int(ahead[there].sum())
            if min(n, len(there) - n) >= min_size:
                return _cut(points, ahead, units[:, :m] @ groups.line[0], gain)
            few = ahead[there] if 2 * n <= len(there) else ~ahead[there]
            if few.any() and (~few).sum() >= least:
                there = there[~few]
                break
        else:
            return likes(points, min_size)
    return None


def standing_cuts(points: Floats, labels: Ids, min_size: int) -> list[Cut]:
    """What an earlier division of points [K, m] in two has become: the two groups that EM finds from there, by number of axes.

    >>> [cut] = standing_cuts(np.array([[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]]), np.array([0, 0, 0, 1, 1, 0]), 2)
    >>> cut.labels.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    middle, units = _round(points)
    cloud = (points - middle) @ units
    start = (labels == np.array([[0], [1]]))[None].astype(np.float64)
    cuts = []
    for m in range(1, cloud.shape[1] + 1):
        groups, _ = _em(cloud[:, :m], start, STEPS)
        ahead = groups.ahead(cloud[:, :m])
        if min(ahead.sum(), (~ahead).sum()) >= min_size:
            cuts.append(_cut(points, ahead, units[:, :m] @ groups.line[0], _gain(groups, cloud)))
    return cuts


def seen_across(points: Floats, cut: Cut) -> Floats:
    """Points [K, m] in a plane [K, 2]: along the cut's line, and along the first axis as far as it stands square to that."""
    rest = np.eye(len(cut.line)) - np.outer(cut.line, cut.line)
    square = rest[np.linalg.norm(rest, axis=1) > 0.1][:1]
    return np.stack([points @ cut.line, points @ square[0] if len(square) else np.zeros(len(points))], 1)


def likes(points: Floats, min_size: int) -> Cut | None:
    """No groups, but two sides along the first axis that are as much alike in themselves as can be."""
    on_axis = points[:, 0] - points[:, 0].mean()
    order = np.argsort(on_axis, kind="stable")
    behind = np.arange(min_size, len(points) - min_size + 1)
    between = on_axis[order].cumsum()[behind - 1] ** 2 / (behind * (len(points) - behind))  # up to a factor
    if between.max() < NARROWEST:
        return None  # everybody is in one place
    ahead = np.zeros(len(points), bool)
    ahead[order[behind[between.argmax()] :]] = True
    return _cut(points, ahead, np.eye(points.shape[1])[0], -np.inf)


def _round(points: Floats) -> tuple[Floats, Floats]:
    """(middle [m], units [m, m]) that make points [K, m] a round cloud of variance 1; the first axes stay among themselves."""
    covariance = np.cov(points.T, bias=True).reshape(points.shape[1], -1)
    root = np.linalg.cholesky(covariance + NARROWEST * np.eye(len(covariance)))
    return points.mean(0), np.linalg.inv(root).T


def _described(cloud: Floats, n_max: int) -> Iterator[tuple[Groups, float]]:
    """The best 2 to n_max groups in the first axis of a round cloud [K, m], in the first two and so on, and what each gains.

    That is by how much BIC improves on one group, less twice the entropy of who is where (the integrated completed
    likelihood of Biernacki, Celeux and Govaert, 2000), for every group beyond the first: groups must be worth their numbers,
    and tell clients apart. Gains can be compared between numbers of axes: one that says nothing costs what its number costs.
    """
    K = len(cloud)
    best = -np.inf
    for k in range(2, min(n_max, K) + 1):
        fewer = best
        known = np.empty((0, k, K))  # what fewer axes told is where the search in more of them begins
        for m in range(1, cloud.shape[1] + 1):
            groups = _best_groups(cloud[:, :m], k, known)
            known = np.concatenate([known, groups.memberships(cloud[:, :m])[1]])
            gain = _gain(groups, cloud)
            best = max(best, gain * (k - 1))
            yield groups, gain
        if best == fewer:
            break


def _gain(groups: Groups, cloud: Floats) -> float:
    """Of each group beyond the first, by the first description."""
    K, k, m = len(cloud), groups.centre.shape[1], groups.line.shape[1]
    enough = TOO_FEW if cloud.shape[1] > 1 else TOO_FEW_IN_ONE
    if enough > K:
        return -math.inf
    likelihood, member = groups.memberships(cloud[:, :m])
    entropy = -(member[0] * np.log(np.maximum(member[0], 1e-300))).sum()
    numbers = 2 * (k - 1) + m - 1  # shares, centres and the direction of the line
    return float((2 * likelihood[0] - numbers * np.log(K) - 2 * entropy) / (k - 1))


def _best_groups(cloud: Floats, k: int, known: Floats) -> Groups:
    """The likeliest that EM finds, from lines and from `known` memberships [R, k, K]."""
    m, K = cloud.shape[1], min(len(cloud), ENOUGH)
    some = np.random.default_rng(0).permutation(len(cloud))[:K] if len(cloud) > K else np.arange(K)
    lines = np.concatenate([np.eye(m), np.random.default_rng(0).standard_normal((LINES if m > 1 else 0, m))])
    place = (lines @ cloud[some].T).argsort(1, kind="stable").argsort(1, kind="stable") / K  # [L, K] in [0, 1)
    at = np.array(TWO_AT)[:, None] if k == 2 else np.arange(1, k)[None] / k  # [cuts, k - 1]
    group = (place[:, None, None] >= at[:, :, None]).sum(2).reshape(-1, 1, K)
    found, likelihood = _em(cloud[some], np.concatenate([group == np.arange(k)[:, None], known[:, :, some]]), FEW_STEPS)
    best = np.argsort(-likelihood, kind="stable")[:BEST].tolist()
    found, likelihood = _em(cloud, found.rows(best).memberships(cloud)[1], STEPS)
    return found.rows([int(likelihood.argmax())])


def _em(cloud: Floats, member: Floats, steps: int) -> tuple[Groups, Floats]:
    """From memberships [R, k, K]; ends when no likelihood grows any more."""
    K = len(cloud)
    before = np.full(len(member), -np.inf)
    for _ in range(steps):
        share = np.maximum(member.sum(2) / K, 1e-9)
        means = member @ cloud / (K * share[:, :, None])  # [R, k, m]
        between = np.swapaxes(share[:, :, None] * means, 1, 2) @ means  # [R, m, m]
        line = np.linalg.eigh(between)[1][:, :, -1]  # along which centres differ most
        centre = np.einsum("rkm,rm->rk", means, line)
        variance = np.maximum(1 - (share * centre**2).sum(1), NARROWEST)
        groups = Groups(line, share, centre, variance)
        likelihood, member = groups.memberships(cloud)
        if (likelihood - before).max() < 1e-3:
            break
        before = likelihood
    return groups, likelihood


def _cut(points: Floats, ahead: NDArray[np.bool_], direction: Floats, gain: float) -> Cut:
    labels = (ahead ^ ahead[0]).astype(np.int64)
    on_line = points @ direction
    sign = np.sign(on_line[labels == 1].mean() - on_line[labels == 0].mean())
    line = sign * direction / np.linalg.norm(direction)
    return Cut(labels, davies_bouldin(on_line[:, None], labels), line, gain, points @ line)
