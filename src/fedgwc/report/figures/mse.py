"""Convergence of interaction matrices: MSE of consecutive P, a panel per cluster.

On a logarithmic scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgwc.core.types import Floats
from fedgwc.report.figures.axes import log_axis, rounds_axis
from fedgwc.report.theme import SOFT, WIDE, panels, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Lines = dict[int, tuple[Floats, Floats]]  # per cluster: rounds, MSE
ALONE, ROW = 2.4, 0.85  # inches: a single panel, and one of several


@styled
def draw(lines: Lines, colour: dict[int, str], eps: float | None = None) -> Figure:
    """Draw a panel per cluster.

    Curves saw up and down when a matrix starts anew, so clusters on one another could not be told apart.
    """
    few = len(lines) == 1
    figure, rows = panels(len(lines), (WIDE[0], 0.6 + (ALONE if few else ROW * len(lines))), sharey=True)
    for ax, (cluster, (x, y)) in zip(rows, lines.items(), strict=True):
        ax.plot(x, y, linewidth=1.2, color=colour.get(cluster, SOFT))
        ax.annotate(f"cluster {cluster}", (1, 1), (5, 0), "axes fraction", textcoords="offset points", va="top", fontsize=8.5)
        ax.grid(axis="y")
        if eps is not None:
            ax.axhline(eps, color=SOFT, linewidth=0.9, linestyle=(0, (4, 3)))
    if eps is not None:
        rows[0].annotate(
            f"eps = {eps:g}", (1, eps), (5, 0), ("axes fraction", "data"), "offset points", va="center", color=SOFT, fontsize=8
        )
    log_axis(rows[0].yaxis, 6 if few else 3)
    rounds_axis(rows[-1], max(float(x[-1]) for x, _ in lines.values()))
    figure.supylabel("MSE of consecutive P", color=SOFT, fontsize=9)
    return figure


def describe(lines: Lines) -> str:
    parts = [
        f"cluster {c} from {y[0]:.1e} at round {x[0]:.0f} to {y[-1]:.1e} at round {x[-1]:.0f}" for c, (x, y) in lines.items()
    ]
    return f"Lines on a logarithmic scale, which start anew at the top when a matrix does: {'; '.join(parts)}."
