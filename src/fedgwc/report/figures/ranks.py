"""A critical-difference diagram: average ranks, and what is not shown to differ (Demsar, 2006)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgwc.comparison.ranking import Ranks
from fedgwc.metrics.ranks import cliques
from fedgwc.report.theme import INK, NEUTRAL, SOFT, WIDE, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW, FIRST = 1.0, 1.4  # heights in lines of text: between names, and of the first below the axis


@styled
def draw(ranks: Ranks) -> Figure:
    """Draw ranks on an axis, the best on the left, with names below and bars between."""
    n, spans = len(ranks.methods), cliques(ranks.ranks, ranks.critical_difference)
    bars = 0.5 * len(spans)
    depth = FIRST + bars + ROW * ((n + 1) // 2)
    figure, ax = canvas((WIDE[0], 0.75 + 0.2 * depth))
    ax.set(xlim=(1 - 0.35 * n, n + 0.35 * n), ylim=(-depth, 1.6))
    ax.axis("off")
    ax.plot([1, n], [0, 0], color=INK, linewidth=1)
    for tick in range(1, n + 1):
        ax.plot([tick, tick], [0, 0.25], color=INK, linewidth=1)
        ax.text(tick, 0.35, str(tick), ha="center", va="bottom", fontsize=8.5, color=SOFT)
    for i, (low, high) in enumerate(spans):
        ax.plot([low - 0.04, high + 0.04], [-0.5 - 0.5 * i] * 2, color=NEUTRAL, linewidth=4, solid_capstyle="butt")
    for i, (name, rank) in enumerate(zip(ranks.methods, ranks.ranks, strict=True)):
        left = i < (n + 1) // 2
        y = -FIRST - bars - ROW * (i if left else n - 1 - i)
        edge = 1 - 0.08 * n if left else n + 0.08 * n
        ax.plot([rank, rank, edge], [0, y, y], color=SOFT, linewidth=0.8)
        ax.text(edge, y, f"{name}  {rank:.2f} " if left else f" {rank:.2f}  {name}", ha="right" if left else "left", va="center")
    low = 1.0
    ax.plot([low, low + ranks.critical_difference], [1.35, 1.35], color=INK, linewidth=1.6)
    ax.text(low, 1.45, f"critical difference {ranks.critical_difference:.2f}", ha="left", va="bottom", fontsize=8.5, color=SOFT)
    return figure


def describe(ranks: Ranks) -> str:
    """Describe the diagram with its numbers."""
    of = "; ".join(f"{name} {rank:.2f}" for name, rank in zip(ranks.methods, ranks.ranks, strict=True))
    return f"Average ranks over {ranks.conditions} conditions: {of}. The critical difference is {ranks.critical_difference:.2f}."
