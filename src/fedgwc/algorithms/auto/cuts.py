"""Cutting a cloud of clients in two.

The line is the one along which groups describe the cloud best; the cut is at the widest gap between them.

Clients may differ most by something that has no groups, and groups then show along another line. So the whole cloud is described
by normals that share one covariance of any shape and have their centres on one line. Once the cloud is whitened (scaled to unit
covariance), everything orthogonal to that line is a single normal, with or without groups. So the search is for the line along
which clients look least like one normal, and most like two or more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.spectral import davies_bouldin
from fedgwc.core.types import Floats, Ids

LINES = 12  # random lines from which EM starts, beside the axes
TWO_AT = 0.1, 0.3, 0.5, 0.7, 0.9  # starts with two groups: shares of the clients in the first; more groups start equally large
FEW_STEPS, STEPS = 5, 100  # of EM: from every start, and then from the best of them
BEST = 3  # starts that are continued
ENOUGH = 2000  # of more clients, a sample of this size decides which starts are best
NARROWEST = 1e-6  # least variance of a group, if that of the cloud is 1
TOO_FEW = 10  # fewer clients form groups by chance, so their groups have no gain ...
TOO_FEW_IN_ONE = 6  # ... in a cloud with only one axis, fewer than this
MOST_ASIDE = 0.1  # largest share of the clients that is put aside: a few that are left soon form groups by chance


@dataclass(frozen=True)
class Cut:
    labels: Ids  # [K] the side, 0 or 1, of each client; that of the first client is 0
    score: float  # Davies-Bouldin of the two sides along the line; lower is clearer
    line: Floats  # [m] the line's direction, from side 0 to side 1
    gain: float  # how much better than one group several describe the cloud, per group beyond the first; scale of BIC
    on_line: Floats  # [K] positions of clients along the line


@dataclass(frozen=True)
class Groups:
    """R descriptions of one whitened cloud [K, m] by k groups.

    Each along a line of its own.
    """

    line: Floats  # [R, m]
    share: Floats  # [R, k] of the clients
    centre: Floats  # [R, k] on the line
    variance: Floats  # [R] of every group along the line

    def rows(self, at: list[int]) -> Groups:
        return Groups(self.line[at], self.share[at], self.centre[at], self.variance[at])

    def memberships(self, points: Floats) -> tuple[Floats, Floats]:
        """Return gains [R] over one group and memberships [R, k, K]."""
        x = (self.line @ points.T)[:, None]
        log = np.log(self.share)[:, :, None] - (x - self.centre[:, :, None]) ** 2 / (2 * self.variance[:, None, None])
        most = log.max(1, keepdims=True)
        odds = np.exp(log - most)
        total = odds.sum(1, keepdims=True)
        likelihood = (most + np.log(total) + x**2 / 2).sum((1, 2)) - points.shape[0] * np.log(self.variance) / 2
        return likelihood, odds / total

    def ahead(self, points: Floats) -> NDArray[np.bool_]:
        """Return the points [K] beyond the widest gap between centres.

        By the first description.
        """
        group = self.memberships(points)[1][0].argmax(0)
        order = sorted(set(group.tolist()), key=lambda g: self.centre[0][g])  # without groups that have no member
        if len(order) < 2:
            return np.zeros(len(points), bool)
        gap = int(np.diff(self.centre[0][order]).argmax())
        return np.isin(group, order[gap + 1 :])


def best_cut(points: Floats, min_size: int, n_max: int = 2) -> Cut | None:
    """Find the best division of points [K, m] in two sides.

    Axes have variance 1; a side has at least `min_size` points; None if there is no such division.

    The sides may consist of several groups, up to `n_max` in all. If a side is too small, its points are put aside, the others
    are described anew, and in the end those set aside go where they fit best. If they would be too many, the next best division
    is tried. If all divisions have too small a side, the result is a cut without groups, which has no gain.

    >>> best_cut(np.array([[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]]), 2).labels.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    there = np.arange(len(points))
    least = max(2 * min_size, (1 - MOST_ASIDE) * len(points))
    while points.shape[1] and len(there) >= least:
        middle, units = _whitening(points[there])
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
            return cut_without_groups(points, min_size)
    return None


def standing_cuts(points: Floats, labels: Ids, min_size: int) -> list[Cut]:
    """Follow an earlier division of points [K, m] in two.

    The groups that EM finds from it, a cut per number of axes.

    >>> [cut] = standing_cuts(np.array([[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]]), np.array([0, 0, 0, 1, 1, 0]), 2)
    >>> cut.labels.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    middle, units = _whitening(points)
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
    """Project points [K, m] on a plane [K, 2].

    Along the cut's line, and along the part of the first axis that is orthogonal to it.
    """
    rest = np.eye(len(cut.line)) - np.outer(cut.line, cut.line)
    square = rest[np.linalg.norm(rest, axis=1) > 0.1][:1]
    return np.stack([points @ cut.line, points @ square[0] if len(square) else np.zeros(len(points))], 1)


def cut_without_groups(points: Floats, min_size: int) -> Cut | None:
    """Two sides along the first axis, each as homogeneous as possible. They need not be groups: the gain is -inf."""
    on_axis = points[:, 0] - points[:, 0].mean()
    order = np.argsort(on_axis, kind="stable")
    behind = np.arange(min_size, len(points) - min_size + 1)
    between = on_axis[order].cumsum()[behind - 1] ** 2 / (behind * (len(points) - behind))  # variance, up to a factor
    if between.max() < NARROWEST:
        return None  # all points are in one place
    ahead = np.zeros(len(points), bool)
    ahead[order[behind[between.argmax()] :]] = True
    return _cut(points, ahead, np.eye(points.shape[1])[0], -np.inf)


def _whitening(points: Floats) -> tuple[Floats, Floats]:
    """Return the middle [m] and the units [m, m] that whiten points [K, m].

    The first j axes of the result depend on the first j axes only.
    """
    covariance = np.cov(points.T, bias=True).reshape(points.shape[1], -1)
    root = np.linalg.cholesky(covariance + NARROWEST * np.eye(len(covariance)))
    return points.mean(0), np.linalg.inv(root).T


def _described(cloud: Floats, n_max: int) -> Iterator[tuple[Groups, float]]:
    """Describe a whitened cloud [K, m] by 2 to n_max groups.

    In the first axis, in the first two and so on, each with its gain.

    The gain is the improvement of BIC over one group, minus twice the entropy of the memberships (the integrated completed
    likelihood of Biernacki, Celeux and Govaert, 2000), per group beyond the first: groups must be worth their parameters and
    separate the clients. Gains are comparable between numbers of axes: an axis that says nothing costs its one parameter.
    """
    K = len(cloud)
    best = -np.inf
    for k in range(2, min(n_max, K) + 1):
        fewer = best
        known = np.empty((0, k, K))  # what was found in fewer axes is a start in more of them
        for m in range(1, cloud.shape[1] + 1):
            groups = _best_groups(cloud[:, :m], k, known)
            known = np.concatenate([known, groups.memberships(cloud[:, :m])[1]])
            gain = _gain(groups, cloud)
            best = max(best, gain * (k - 1))
            yield groups, gain
        if best == fewer:
            break


def _gain(groups: Groups, cloud: Floats) -> float:
    """The gain per group beyond the first, of the first description; -inf for too few clients."""
    K, k, m = len(cloud), groups.centre.shape[1], groups.line.shape[1]
    enough = TOO_FEW if cloud.shape[1] > 1 else TOO_FEW_IN_ONE
    if enough > K:
        return -math.inf
    likelihood, member = groups.memberships(cloud[:, :m])
    entropy = -(member[0] * np.log(np.maximum(member[0], 1e-300))).sum()
    numbers = 2 * (k - 1) + m - 1  # free parameters: shares, centres and the direction of the line
    return float((2 * likelihood[0] - numbers * np.log(K) - 2 * entropy) / (k - 1))


def _best_groups(cloud: Floats, k: int, known: Floats) -> Groups:
    """Find the likeliest k groups by EM from several starts.

    Starts are cuts along lines and the `known` memberships [R, k, K].
    """
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
    """EM from memberships [R, k, K], until no likelihood grows any more: (groups, likelihoods [R])."""
    K = len(cloud)
    before = np.full(len(member), -np.inf)
    for _ in range(steps):
        share = np.maximum(member.sum(2) / K, 1e-9)
        means = member @ cloud / (K * share[:, :, None])  # [R, k, m]
        between = np.swapaxes(share[:, :, None] * means, 1, 2) @ means  # [R, m, m]
        line = np.linalg.eigh(between)[1][:, :, -1]  # along which the centres differ most
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
