"""Axes of all figures: rounds with thousands, and labelled logarithmic ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

FEW = 3  # ticks that a logarithmic axis wants, so that distances on it can be judged
STEPS = ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10)))  # of a decade that are labelled, from the roundest on

WIDEST_POINT = 1.1  # high over low, below which values are one: the axis then shows a little on both sides


def rounds_axis(ax: Axes, end: float, most: int = 6) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    ax.set(xlabel="round", xlim=(0, end))
    ax.xaxis.set_major_locator(MaxNLocator(most, integer=True, steps=[1, 2, 2.5, 5, 10]))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def log_axis(axis: Axis, most: int = 6) -> None:
    """Make `axis` logarithmic, with labels for the present drawing.

    matplotlib labels none between two powers of ten.
    """
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})  # type: ignore[attr-defined]  # "x" or "y"
    low, high = axis.get_view_interval()
    if high < WIDEST_POINT * low:
        low, high = low / WIDEST_POINT, high * WIDEST_POINT
    ticks = log_ticks(float(low), float(high), most)
    axis.set_ticks(ticks, log_labels(ticks))
    axis.set_ticks([], minor=True)
    axis.axes.set(**{f"{axis.axis_name}lim": (low, high)})  # type: ignore[attr-defined]


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Choose round numbers within the limits, both positive.

    At least two and, where whole decades are enough, at most `most`.
    """
    return next(ticks for ticks in _from_best(low, high, most) if len(ticks) > 1)


def _from_best(low: float, high: float, most: int) -> Iterator[list[float]]:
    from matplotlib.ticker import MaxNLocator

    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    inside = [[t for e in range(first, last + 1) for s in steps if low <= (t := s * 10.0**e) <= high] for steps in STEPS]
    decades = inside[0]
    yield from (ticks for ticks in inside if FEW <= len(ticks) <= most)
    yield decades[:: -(-len(decades) // most) or 1]
    yield [float(t) for t in MaxNLocator(most).tick_values(low, high) if low <= t <= high]  # between two powers of ten


def log_labels(ticks: list[float]) -> list[str]:
    """Format plain numbers where short, else as 2·10⁻³.

    Without mathematical typesetting.
    """
    if min(ticks) >= 0.001 and max(ticks) < 1e5:
        return [f"{t:,.6g}" for t in ticks]
    return [scientific(t) for t in ticks]


def scientific(value: float) -> str:
    mantissa, exponent = f"{value:.2e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    power = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if mantissa == "1" else f"{mantissa}·{power}"
