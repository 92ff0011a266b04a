"""Gaussian weights of all clients, cluster by cluster, with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedgwc.core.types import Floats
from fedgwc.report.theme import GRID, MARKERS, PAPER, SOFT, canvas, styled
from fedgwc.report.weights import Weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BARS = 250  # clients up to which each has a bar of its own; more would merge
MARKED = 2000  # clients up to which each has a marker
NARROWEST = 0.035  # of the axis: the room that a cluster's number takes


@styled
def draw(weights: list[Weights], colour: dict[int, str]) -> Figure:
    figure, ax = canvas()
    total, left, middles = sum(len(w.clients) for w in weights), 0.0, []
    for i, w in enumerate(weights):
        width = max(len(w.clients), NARROWEST * total) + 0.01 * total
        middles.append(left + width / 2)
        x = middles[-1] + np.arange(len(w.clients), dtype=np.float64) - (len(w.clients) - 1) / 2
        _cluster(ax, w, x, colour.get(w.cluster, SOFT), i, total)
        left += width
        if i < len(weights) - 1:
            ax.axvline(left, color=GRID, linewidth=0.8)
    named = apart(middles, NARROWEST * left)
    ax.set_xticks([middles[i] for i in named], [str(weights[i].cluster) for i in named])
    ax.tick_params(axis="x", length=0)
    ax.set(xlim=(0, left), xlabel="cluster, its clients from low to high weight", ylabel="Gaussian weight γ")
    ax.grid(axis="y")
    return figure


def _cluster(ax: Axes, w: Weights, x: Floats, face: str, i: int, total: int) -> None:
    has_interval = ~w.once
    if total > BARS:
        ax.fill_between(x[has_interval], w.low[has_interval], w.high[has_interval], color=face, alpha=0.3, linewidth=0)
    else:
        ax.vlines(x[has_interval], w.low[has_interval], w.high[has_interval], color=face, linewidth=1.6, alpha=0.55)
    marker, size = MARKERS[i % len(MARKERS)] if total <= MARKED else ",", 3 if total > 60 else 4.5
    for some, fill in ((has_interval, face), (w.once, PAPER)):
        ax.plot(x[some], w.gamma[some], marker, color=face, markerfacecolor=fill, markeredgewidth=0.8, markersize=size)


def apart(places: list[float], gap: float) -> list[int]:
    """Choose positions to label, at least `gap` apart.

    The positions rise; of very many not all are labelled.
    """
    named: list[int] = []
    for i, place in enumerate(places):
        if not named or place - places[named[-1]] >= gap:
            named.append(i)
    return named


def describe(weights: list[Weights]) -> str:
    parts = [
        f"cluster {w.cluster}: from {w.gamma.min():.2f} to {w.gamma.max():.2f}, median {np.median(w.gamma):.2f}, "
        f"intervals {np.median(w.high - w.low):.2f} wide in the median"
        for w in weights[:8]
        if len(w.gamma)
    ]
    more = f"; and {len(weights) - 8} more clusters" if len(weights) > 8 else ""
    return f"A dot with a bar per client. {'; '.join(parts)}{more}."
