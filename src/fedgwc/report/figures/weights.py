"""Gaussian weights of all clients, cluster by cluster, with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedgwc.report.theme import GRID, INK, MARKERS, SOFT, canvas, styled
from fedgwc.report.weights import Weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def draw(weights: list[Weights], colour: dict[int, str]) -> Figure:
    figure, ax = canvas()
    total, gap, left = sum(len(w.clients) for w in weights), 2, 0
    for i, w in enumerate(weights):
        x = left + np.arange(len(w.clients))
        face = colour.get(w.cluster, SOFT)
        if total > 250:  # single bars would merge anyway
            ax.fill_between(x, w.low, w.high, color=face, alpha=0.3, linewidth=0)
        else:
            ax.vlines(x, w.low, w.high, color=face, linewidth=1.6, alpha=0.55)
        ax.plot(x, w.gamma, MARKERS[i % len(MARKERS)] if total <= 2000 else "-", color=face, markersize=3 if total > 60 else 4.5)
        if len(w.clients) > 0.035 * total:
            middle = left + (len(w.clients) - 1) / 2
            name = f"cluster {w.cluster}" if len(w.clients) > 0.16 * total else str(w.cluster)
            ax.annotate(
                name, (middle, 1), (0, 3), ("data", "axes fraction"), "offset points", ha="center", color=INK, fontsize=8.5
            )
        left += len(w.clients) + gap
        if i < len(weights) - 1:
            ax.axvline(left - (gap + 1) / 2, color=GRID, linewidth=0.8)
    ax.set(
        xlim=(-1, left - gap), xticks=[], xlabel="clients, from low to high weight in each cluster", ylabel="Gaussian weight γ"
    )
    ax.grid(axis="y")
    return figure


def describe(weights: list[Weights]) -> str:
    parts = [
        f"cluster {w.cluster}: from {w.gamma.min():.2f} to {w.gamma.max():.2f}, median {np.median(w.gamma):.2f}, "
        f"intervals {np.median(w.high - w.low):.2f} wide in the median"
        for w in weights[:8]
        if len(w.gamma)
    ]
    more = f"; and {len(weights) - 8} more clusters" if len(weights) > 8 else ""
    return f"A dot with a bar per client. {'; '.join(parts)}{more}."
