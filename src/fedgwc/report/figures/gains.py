"""Each client's gain over another method, sorted, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedgwc.comparison.gains import LEVEL, Gains
from fedgwc.core.text import plural
from fedgwc.core.types import Floats
from fedgwc.report.theme import INK, SMALL, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

FEW = 150  # clients up to which each has a bar of its own; of more, the bars are one band


def sorted_gains(gains: Sequence[Gains]) -> tuple[Floats, Floats, Floats, Floats]:
    """Sort all seeds' gains, with bounds and adjusted p.

    Gain, low and high [n] in per cent and p [n], from the largest loss on."""
    gain, low, high, p = (np.concatenate([getattr(g, name) for g in gains]) for name in ("gain", "low", "high", "p"))
    order = np.lexsort((high, low, gain))
    return 100 * gain[order], 100 * low[order], 100 * high[order], p[order]


@styled
def draw(gains: Sequence[Gains], colour: str) -> Figure:
    """Draw a point and an interval per client; filled where its own test shows a difference."""
    gain, low, high, p = sorted_gains(gains)
    figure, ax = canvas(SMALL)
    x = np.arange(1, len(gain) + 1)
    if len(x) <= FEW:
        ax.vlines(x, low, high, color=colour, linewidth=0.8, alpha=0.45)
    else:
        ax.fill_between(x, low, high, color=colour, alpha=0.25, linewidth=0, step="mid")
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.plot(x, gain, ".", color=colour, markersize=3.5)
    shown = p < LEVEL
    ax.plot(x[shown], gain[shown], "o", color=colour, markersize=4.5)
    ax.set(xlabel="clients, sorted", ylabel="gain, percentage points", xlim=(0, len(x) + 1))
    ax.xaxis.set_major_locator(_whole())
    ax.grid(axis="y")
    return figure


def _whole() -> Locator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(5, integer=True, steps=[1, 2, 5, 10])


def caption(gains: Sequence[Gains]) -> str:
    """Say who gains, who loses, and of whom that is shown."""
    gain, _, _, p = sorted_gains(gains)
    shown = p < LEVEL
    text = f"Better {100 * (gain > 0).mean():.0f} % of the clients, worse {100 * (gain < 0).mean():.0f} %"
    text += f"; shown better {100 * (shown & (gain > 0)).mean():.0f} %, shown worse {100 * (shown & (gain < 0)).mean():.0f} %."
    return text if any(g.can_be_shown for g in gains) else f"{text} Clients have too few test samples to show anything singly."


def describe(name: str, gains: Sequence[Gains]) -> str:
    """Describe the picture with its numbers."""
    gain, _, _, _ = sorted_gains(gains)
    low, middle, high = np.percentile(gain, [10, 50, 90])
    return (
        f"Gains of {plural(len(gain), 'client')} by {name} over training alone, sorted. Mean {gain.mean():+.1f} percentage "
        f"points, median {middle:+.1f}, a tenth at most {low:+.1f}, a tenth at least {high:+.1f}. {caption(gains)}"
    )
