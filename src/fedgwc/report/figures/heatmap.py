"""A matrix over clients as a heat map, ordered by cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedgwc.core.types import Floats, Ids
from fedgwc.report.theme import HEAT, PAPER, SOFT, SQUARE, canvas, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PIXELS = 200  # of a side at most: larger federations are averaged in blocks, which keeps the page small


@styled
def draw(matrix: Floats, groups: Ids, label: str, order: list[int] | None = None) -> Figure:
    """Draw a matrix [K, K] with rows ordered by cluster [K].

    Entries that are 0 have never been seen and stay empty.
    """
    figure, ax = canvas(SQUARE)
    ranked, sorted_groups = rows_in_order(groups, order)
    shown = shrink(np.where(matrix == 0, np.nan, matrix)[np.ix_(ranked, ranked)])
    low, high = limits(matrix)
    K = len(groups)
    ax.imshow(colours(shown, low, high), extent=(0, K, K, 0), interpolation="none")
    edges = np.flatnonzero(np.diff(sorted_groups)) + 1
    for edge in edges.tolist():
        ax.axhline(edge, color=PAPER, linewidth=1.0)
        ax.axvline(edge, color=PAPER, linewidth=1.0)
    starts, ends = np.r_[0, edges], np.r_[edges, K]
    big = (ends - starts) / K > 0.045
    ax.set_yticks(((starts + ends) / 2)[big], [f"{sorted_groups[s]}" for s in starts[big]])
    ax.set_xticks([])
    ax.set(ylabel="cluster", xlabel=f"{K} clients")
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    _scale(ax, low, high, label)
    return figure


def rows_in_order(groups: Ids, order: list[int] | None) -> tuple[Ids, Ids]:
    """Sort rows by cluster, inside a cluster by client.

    Clusters in the order of the tree where it is given.
    """
    place = {c: i for i, c in enumerate(order or sorted({int(g) for g in groups}))}
    ranked = np.argsort([place.get(int(g), len(place)) for g in groups], kind="stable")
    return ranked, groups[ranked]


def shrink(matrix: Floats) -> Floats:
    """Average blocks where a side is longer than PIXELS."""
    K = len(matrix)
    if K <= PIXELS:
        return matrix
    at = (np.arange(K) * PIXELS) // K
    member = np.zeros((PIXELS, K))
    member[at, np.arange(K)] = 1
    seen = np.isfinite(matrix)
    count = member @ seen @ member.T
    total = member @ np.where(seen, matrix, 0) @ member.T
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def limits(matrix: Floats) -> tuple[float, float]:
    """Return the range of nearly all entries off the diagonal.

    A few outliers must not wash out the rest.
    """
    off = matrix[~np.eye(len(matrix), dtype=bool)]
    seen = off[off > 0]
    low, high = np.percentile(seen, [1, 99]) if len(seen) else (0.0, 1.0)
    return (float(low), float(high)) if high > low else (float(low) - 0.5, float(low) + 0.5)


def colours(shown: Floats, low: float, high: float) -> Floats:
    import matplotlib as mpl

    # 64 shades are as many as can be told apart, and compress far better than 256.
    level = np.floor(np.clip((shown - low) / (high - low), 0, 0.999) * 64) / 63
    return np.asarray(mpl.colormaps[HEAT].with_extremes(bad=(0.5, 0.5, 0.5, 0.25))(np.ma.masked_invalid(level)), np.float64)


def _scale(ax: Axes, low: float, high: float, label: str) -> None:
    """Draw a colour scale as one small image.

    A drawn one would be hundreds of shapes.
    """
    bar = ax.inset_axes((1.04, 0.0, 0.045, 1.0))
    steps = np.linspace(high, low, 64)[:, None]
    bar.imshow(colours(steps, low, high), extent=(0, 1, low, high), aspect="auto", interpolation="none")
    bar.yaxis.tick_right()
    bar.set_xticks([])
    bar.tick_params(axis="y", length=0)
    for spine in bar.spines.values():
        spine.set_visible(False)
    bar.set_title(label, color=SOFT, fontsize=8.5, loc="right")


def describe(matrix: Floats, groups: Ids, what: str) -> str:
    """Describe the means within and between clusters."""
    same = groups[:, None] == groups
    off, seen = ~np.eye(len(matrix), dtype=bool), matrix > 0
    within = matrix[same & off & seen]
    between = matrix[~same & seen]
    text = f"Heat map of {what} over {len(groups)} clients in {len(np.unique(groups))} cluster(s)."
    text += f" Mean within clusters {within.mean():.3f}" if len(within) else ""
    return text + (f", between clusters {between.mean():.3f}." if len(between) else ".")
