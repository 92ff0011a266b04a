"""Class shares of clusters: one beside the federation, and two face to face."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgwc.core.types import Floats, Ids
from fedgwc.report.theme import INK, NEUTRAL, SMALL, canvas, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PAIRS = 6  # the ones that overlap least and most say what there is to say


def shares(counts: Floats, groups: Ids) -> dict[int, Floats]:
    """Return the share [C] of each class among each cluster's samples."""
    sums = {int(c): counts[groups == c].sum(0) for c in np.unique(groups)}
    return {c: s / max(s.sum(), 1.0) for c, s in sums.items()}


def overlap(p: Floats, q: Floats) -> float:
    """Compute the overlap of two distributions, 0 to 1."""
    return float(np.minimum(p, q).sum())


def pairs(share: dict[int, Floats], most: int = MOST_PAIRS) -> list[tuple[int, int]]:
    """List pairs of clusters from least to most overlap.

    All or, of too many, those that overlap least and most.
    """
    ranked = sorted(combinations(share, 2), key=lambda ab: (overlap(share[ab[0]], share[ab[1]]), ab))
    return ranked if len(ranked) <= most else ranked[: most - most // 3] + ranked[-(most // 3) :]


@styled
def draw_one(share: Floats, federation_share: Floats, colour: str, top: float) -> Figure:
    """Draw a cluster's class shares beside the federation's.

    `top` is the highest share of all panels, so that they can be compared.
    """
    figure, ax = canvas(SMALL)
    edges = np.arange(len(share) + 1) - 0.5
    ax.stairs(100 * share, edges, fill=True, color=colour, alpha=0.6, linewidth=0)
    ax.stairs(100 * federation_share, edges, color=INK, linewidth=1.0, linestyle=(0, (3, 1.5)))
    ax.set(ylabel="% of samples", ylim=(0, 105 * top))
    _class_axis(ax, len(share))
    return figure


@styled
def draw_pair(up: tuple[int, Floats, str], down: tuple[int, Floats, str], top: float) -> Figure:
    figure, ax = canvas(SMALL)
    edges = np.arange(len(up[1]) + 1) - 0.5
    for sign, (cluster, share, colour) in ((1, up), (-1, down)):
        ax.stairs(sign * 100 * share, edges, fill=True, color=colour, alpha=0.6, linewidth=0)
        place: dict[str, Any] = {"va": "top"} if sign > 0 else {"va": "bottom"}
        ax.text(0.99, 0.5 + sign * 0.49, f"cluster {cluster}", transform=ax.transAxes, ha="right", fontsize=8.5, **place)
    ax.axhline(0, color=NEUTRAL, linewidth=0.8)
    ax.set(ylabel="% of samples", ylim=(-125 * top, 125 * top))
    ax.yaxis.set_major_formatter(lambda v, _: f"{abs(v):g}")
    _class_axis(ax, len(up[1]))
    return figure


def _class_axis(ax: Axes, n: int) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.set_xlim(-0.5, n - 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.set_xlabel("class")


def describe_one(share: Floats) -> str:
    top = np.argsort(-share, kind="stable")[:3]
    most = ", ".join(f"class {c} {100 * share[c]:.0f} %" for c in top if share[c] > 0)
    return f"Bars over {len(share)} classes, {int((share > 0).sum())} of them present; most frequent: {most}."


def describe_pair(a: int, p: Floats, b: int, q: Floats) -> str:
    shared = int(((p > 0) & (q > 0)).sum())
    both = f"{shared} of {len(p)} classes are in both, overlap {overlap(p, q):.2f}"
    return f"Class shares of cluster {a} upwards and cluster {b} downwards: {both}."
