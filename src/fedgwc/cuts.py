"""Where a cloud of clients falls into two, the line along which two groups stand out most, and what chance would show.

Clients may well differ most by something that has no groups. Along most lines a cut then goes through a continuum; where
there are groups, some line shows them apart. Davies-Bouldin measures this on a line: the mean distances to the two groups'
centres, added, over the distance between them. The halves of a normal distribution score 0.61, two groups far apart near 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedgwc.core import Floats, Ids

LINES = 500  # tried per axis beyond the first
ENOUGH = 200  # by chance a larger cloud divides worse, so for more clients this many stand in, to be on the safe side
AT_ONCE = 2**16  # numbers sorted at once: few enough for the cache, and for memory that need not be asked for again


@dataclass(frozen=True)
class Cut:
    labels: Ids  # [K] 0 and 1, 0 for the first client
    score: float  # Davies-Bouldin of the two groups on the line; lower is clearer
    line: Floats  # [m] the line's direction


def best_cut(points: Floats, min_size: int) -> Cut | None:
    """The clearest division of points [K, m] by a line, each side with at least `min_size`; m axes of variance 1.

    A line is cut where 2-means would cut it. None: too few points, or all of them in one place.

    >>> best_cut(np.array([[-1.0], [-1.1], [1.0], [1.1]]), 2).labels.tolist()
    [0, 0, 1, 1]
    """
    K, m = points.shape
    if m == 0 or 2 * min_size > K:
        return None
    lines = _lines(m)
    centred = points - points.mean(0)
    at_once = max(1, AT_ONCE // K)
    found = [_cuts(lines[i : i + at_once] @ centred.T, min_size) for i in range(0, len(lines), at_once)]
    scores, sizes = (np.concatenate(a) for a in zip(*found, strict=True))
    best = int(scores.argmin())
    if not np.isfinite(scores[best]):
        return None
    order = np.argsort(points @ lines[best], kind="stable")
    labels = np.zeros(K, np.int64)
    labels[order[sizes[best] :]] = 1
    return Cut(labels ^ labels[0], float(scores[best]), lines[best])


def seen_across(points: Floats, cut: Cut) -> Floats:
    """Points [K, m] in a plane [K, 2]: along the cut's line, and along the first axis as far as it stands square to that."""
    rest = np.eye(len(cut.line)) - np.outer(cut.line, cut.line)
    square = rest[np.linalg.norm(rest, axis=1) > 0.1][:1]
    return np.stack([points @ cut.line, points @ square[0] if len(square) else np.zeros(len(points))], 1)


def best_by_chance(shape: tuple[int, ...], min_size: int, draws: int, enough: float) -> float:
    """The best score of `draws` clouds of normal points of this shape [K, m], which have no groups; `enough` ends the search.

    A cut is clearer than chance if its score, given for `enough`, is below what comes back. No clouds: infinite.
    """
    K, m = shape
    best = np.inf
    for draw in range(draws):
        best = min(best, _score_by_chance(min(K, ENOUGH), m, min_size, draw))
        if best <= enough:
            break
    return best


@lru_cache(maxsize=2**16)
def _score_by_chance(K: int, m: int, min_size: int, draw: int) -> float:
    x = np.random.default_rng(draw).standard_normal((K, m))
    axes, _, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    cut = best_cut(axes * np.sqrt(K), min_size)
    return np.inf if cut is None else cut.score


@lru_cache
def _lines(m: int) -> Floats:
    """Directions [L, m], always the same ones, the axes among them."""
    drawn = np.random.default_rng(0).standard_normal((LINES * (m - 1), m))
    return np.concatenate([np.eye(m), drawn / np.linalg.norm(drawn, axis=1, keepdims=True)])


def _cuts(x: Floats, min_size: int) -> tuple[Floats, Ids]:
    """x [L, K], clients on L lines around 0 -> Davies-Bouldin and size of the lower group [L] where the squares within are least.

    x is sorted in place; what the n lowest add up to, for all n, tells the rest.
    """
    L, K = x.shape
    x.sort(1)
    sums = np.cumsum(x, 1)
    line = np.arange(L)

    def below(values: Floats) -> Floats:
        """How far clients below a value [L] are from it, added up."""
        n = (x < values[:, None]).sum(1)
        return np.where(n > 0, n * values - sums[line, n - 1], 0.0)

    n = np.arange(min_size, K - min_size + 1)  # sizes the lower group may have
    # The squares within are least where those between the means are largest; the two groups' sums differ in sign alone.
    size = n[(sums[:, n[0] - 1 : n[-1]] / np.sqrt(n * (K - n))).argmin(1)]
    low, high = sums[line, size - 1] / size, -sums[line, size - 1] / (K - size)
    apart = high - low
    # Distances add up to the same on both sides of a mean. Below the upper one lies the whole lower group as well.
    spread = 2 * below(low) / size + 2 * (below(high) - size * apart) / (K - size)
    return np.where(apart > 1e-9, spread / np.maximum(apart, 1e-9), np.inf), size
