"""Names beside the ends of lines, in place of a legend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


End = tuple[float, float, dict[str, Any]]  # where a line ends, and its look: colour, dash and marker
Ends = dict[str, End]  # by the line's name
AWAY = 14  # points from the edge to the marker before a name


def beside(ax: Axes, ends: Ends, right: float, gap: float = 11.5) -> None:
    """Write each name outside the plot, at its line's end.

    At least `gap` points from the others.

    Where the name is not right beside the line, the line's marker stands before it.
    """
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]  # the scales are final only now
    at = {n: ax.transData.transform((x, y)) for n, (x, y, _) in ends.items()}
    edge = float(ax.transData.transform((right, ends[next(iter(ends))][1]))[0]) if ends else 0.0
    early = {n for n, (x, _) in at.items() if x < edge - 0.03 * ax.bbox.width}
    outside = spread({n: float(y) for n, (_, y) in at.items()}, gap)
    crowded = bool(early) or any(abs(place - at[n][1]) > gap / 2 for n, place in outside.items())
    for name, place in outside.items():
        end, up = (right, *ends[name][1:]), place - float(at[name][1])
        if crowded:
            _mark(ax, end, (AWAY, up), led=name not in early)
        _write(ax, name, end, (AWAY + 7 if crowded else 6, up))


def _write(ax: Axes, name: str, end: End, offset: tuple[float, float]) -> None:
    x, y, look = end
    ax.annotate(name, (x, y), offset, textcoords="offset points", color=look["color"], fontsize=8.5, va="center")


def _mark(ax: Axes, end: End, offset: tuple[float, float], led: bool) -> None:
    """Draw the line's marker and, if `led`, the line on to it."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    x, y, look = end
    there = ax.transData + ScaledTranslation(offset[0] / 72, offset[1] / 72, ax.figure.dpi_scale_trans)
    ax.add_artist(Line2D([x], [y], markersize=5, clip_on=False, transform=there, **look))
    if led:
        line = {"color": look["color"], "linestyle": look["linestyle"], "linewidth": 0.9}
        bare = {"arrowstyle": "-", "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (x, y), offset, textcoords="offset points", arrowprops=line | bare)


def spread(places: dict[str, float], gap: float) -> dict[str, float]:
    """Move positions at least `gap` apart.

    As little as a sweep from the middle can do.
    """
    names = sorted(places, key=lambda n: places[n])
    y = np.array([places[n] for n in names])
    for _ in range(1000):
        short = gap - np.diff(y)
        if (short <= 1e-6).all():
            break
        push = np.maximum(short, 0) / 2
        y[:-1] -= push
        y[1:] += push
    return dict(zip(names, y.tolist(), strict=True))
