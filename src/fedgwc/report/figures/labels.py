"""Names beside the ends of lines, so that no one has to match colours with a legend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedgwc.report.theme import PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def beside(ax: Axes, ends: dict[str, tuple[float, float, str]], right: float, gap: float = 11.5) -> None:
    """Write each name at its line's end (x, y, colour), at least `gap` points apart; outside, for lines that reach the edge."""
    inner = {n: e for n, e in ends.items() if e[0] < 0.97 * right}
    outer = {n: e for n, e in ends.items() if n not in inner}
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]  # the scales are final only now
    box = {"facecolor": PAPER, "alpha": 0.8, "linewidth": 0, "pad": 1.0}
    for group, shift, style in ((inner, (-2, 15), {"ha": "right", "bbox": box}), (outer, (6, 0), {})):
        places = {n: float(ax.transData.transform((x, y))[1]) for n, (x, y, _) in group.items()}
        for name, y in spread(places, gap).items():
            offset = (shift[0], shift[1] + y - places[name])
            look: dict[str, Any] = {"color": group[name][2], "fontsize": 8.5, "va": "center", **style}
            ax.annotate(name, group[name][:2], offset, textcoords="offset points", **look)


def spread(places: dict[str, float], gap: float) -> dict[str, float]:
    """Positions at least `gap` apart, moved as little as a sweep from the middle can do."""
    names = sorted(places, key=lambda n: places[n])
    y = np.array([places[n] for n in names])
    for _ in range(100):
        short = gap - np.diff(y)
        if (short <= 1e-6).all():
            break
        push = np.maximum(short, 0) / 2
        y[:-1] -= push
        y[1:] += push
    return dict(zip(names, y.tolist(), strict=True))
