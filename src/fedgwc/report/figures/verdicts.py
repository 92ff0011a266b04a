"""Evidence for divisions, window by window, beside the required values.

Agreement, drift and contrast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.core.text import plural
from fedgwc.core.types import Floats
from fedgwc.report.data import Judged
from fedgwc.report.figures.axes import rounds_axis
from fedgwc.report.theme import INK, SOFT, WIDE, looks, panels, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RING: dict[str, Any] = {"color": INK, "marker": "o", "markersize": 9, "markerfacecolor": "none", "linestyle": ""}
MANY = 60  # windows, from which on lines between them would hide them
Lines = dict[int, list[Judged]]  # per cluster: its windows, in the order of rounds


@styled
def draw(lines: Lines, colour: dict[int, str], end: int, algorithm: Auto) -> Figure:
    figure, rows = panels(3, (WIDE[0], 4.6))
    many = sum(map(len, lines.values())) > MANY
    titles = {
        "agreement with the window before": algorithm.agreement,
        f"share of rounds with drift of {algorithm.drift:g} or more": 0.5,
        f"share of rounds with contrast of {algorithm.contrast:g} or more": 0.5,
    }
    for i, (ax, (title, asked)) in enumerate(zip(rows, titles.items(), strict=True)):
        for (cluster, judged), look in zip(lines.items(), looks(colour.get(c, SOFT) for c in lines), strict=True):
            seen = zip(judged, readings(judged)[:, i], strict=True)
            points = [(j.round, y, j.verdict.divides) for j, y in seen if np.isfinite(y)]
            rings = [p for p in points if p[2]]
            line = look | {"markersize": 3 if many else 4, "linewidth": 0.5 if many else 1.2, "label": f"cluster {cluster}"}
            for some, how in ((points, line), (rings, RING)):
                if some:  # nothing at all has no place, which the layout cannot bear
                    ax.plot([p[0] for p in some], [p[1] for p in some], clip_on=False, **how)
        ax.axhline(asked, color=SOFT, linewidth=0.9, linestyle=(0, (4, 3)))
        ax.set_title(title, pad=9)  # room for a ring at the top
        ax.annotate(
            f"{asked:g}", (1, asked), (5, 0), ("axes fraction", "data"), "offset points", va="center", color=SOFT, fontsize=8
        )
        ax.set(ylim=(0, 1), yticks=(0, 0.5, 1))
        ax.grid(axis="y")
    rounds_axis(rows[-1], end)
    if len(lines) > 1:
        named = dict(zip(*reversed(rows[-1].get_legend_handles_labels()), strict=True))
        figure.legend(named.values(), named.keys(), loc="outside upper left", ncols=3)
    return figure


def readings(judged: list[Judged]) -> Floats:
    """Return agreement and shares of rounds adrift and apart [windows, 3].

    NaN: not known.
    """
    seen = [j.verdict for j in judged]
    shares = [(v.agreement, v.adrift / v.rounds, v.apart / v.rounds) if v.rounds else (v.agreement, None, None) for v in seen]
    return np.clip(np.array(shares, np.float64), 0, 1)


def describe(lines: Lines) -> str:
    parts = []
    for cluster, judged in lines.items():
        named = zip(("agreement", "drift", "contrast"), readings(judged)[-1], strict=True)
        seen = [f"{name} {value:.2f}" for name, value in named if np.isfinite(value)]
        fate = "divided" if judged[-1].verdict.divides else "whole"
        parts.append(f"cluster {cluster}, {plural(len(judged), 'window')}, {fate} after the last: {', '.join(seen)}")
    return f"Agreement, and shares of rounds with enough drift and contrast, per window. {'; '.join(parts)}."
