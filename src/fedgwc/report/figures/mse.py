"""How the interaction matrices settle: MSE of consecutive P on a logarithmic scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgwc.core import Floats
from fedgwc.report.figures.labels import Ends, beside
from fedgwc.report.theme import SOFT, canvas, looks, power_of_ten, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Lines = dict[int, tuple[Floats, Floats]]  # per cluster: rounds, MSE


@styled
def draw(lines: Lines, colour: dict[int, str], end: int, eps: float | None = None) -> Figure:
    figure, ax = canvas()
    ends: Ends = {}
    for (cluster, (x, y)), look in zip(lines.items(), looks(colour.get(c, SOFT) for c in lines), strict=True):
        ax.plot(x, y, linewidth=1.4, markevery=[-1], markersize=5, clip_on=False, **look)
        ends[f"cluster {cluster}"] = (x[-1], y[-1], look)
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(power_of_ten)
    ax.yaxis.minorticks_off()
    ax.grid(axis="y")
    ax.set(xlabel="round", ylabel="MSE of consecutive P", xlim=(0, end))
    if eps is not None:
        ax.axhline(eps, color=SOFT, linewidth=0.9, linestyle=(0, (4, 3)))
        ax.annotate(f"eps = {eps:g}", (0, eps), (4, 3), textcoords="offset points", color=SOFT, fontsize=8)
    beside(ax, ends, end)
    return figure


def describe(lines: Lines) -> str:
    parts = [
        f"cluster {c} from {y[0]:.1e} at round {x[0]:.0f} to {y[-1]:.1e} at round {x[-1]:.0f}"
        for c, (x, y) in list(lines.items())[:8]
    ]
    more = f"; and {len(lines) - 8} more clusters" if len(lines) > 8 else ""
    return f"Falling lines on a logarithmic scale: {'; '.join(parts)}{more}."
