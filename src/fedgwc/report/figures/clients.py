"""Accuracy of the final models per client: a histogram per cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedgwc.core.types import Floats
from fedgwc.report.theme import GRID, INK, NEUTRAL, SOFT, WIDE, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = np.linspace(-2.5, 102.5, 22)  # centred on multiples of 5, so that 100 % has a bar of its own
MOST = 10  # clusters shown apart


def rows(accuracy: Floats, clusters: dict[int, Floats]) -> list[tuple[str, int | None, Floats]]:
    """List (name, cluster or None, values) of each histogram.

    Everybody first, then the largest clusters if there are several.
    """
    ranked = sorted(clusters, key=lambda c: (-len(clusters[c]), c))[:MOST]
    return [("all", None, accuracy)] + ([(f"cluster {c}", c, clusters[c]) for c in sorted(ranked)] if len(clusters) > 1 else [])


@styled
def draw(accuracy: Floats, clusters: dict[int, Floats], colour: dict[int, str]) -> Figure:
    """Draw accuracy [N] in per cent, over all and by cluster.

    Each row is scaled to its own highest bar.
    """
    shown = rows(accuracy, clusters)
    figure, ax = canvas((WIDE[0], 0.9 + 0.55 * len(shown)))
    for i, (_, cluster, values) in enumerate(shown):
        share = np.histogram(values, BINS)[0] / max(len(values), 1)
        base = len(shown) - 1 - i
        face = NEUTRAL if cluster is None else colour.get(cluster, NEUTRAL)
        ax.axhline(base, color=GRID, linewidth=0.8)
        ax.stairs(base + 0.72 * share / share.max(), BINS, baseline=base, fill=True, color=face, alpha=0.55, linewidth=0)
        mean = values.mean()
        ax.plot([mean, mean], [base, base + 0.8], color=INK, linewidth=1.4)
        ax.annotate(f"mean {mean:.1f}", (1.015, base), xycoords=("axes fraction", "data"), va="bottom", fontsize=8.5, color=SOFT)
    ax.set_yticks(range(len(shown) - 1, -1, -1), [f"{name} ({len(v)})" for name, _, v in shown])
    ax.set(xlabel="test accuracy of a client, %", xlim=(-2.5, 102.5), ylim=(0, len(shown)))
    ax.spines["left"].set_visible(False)
    return figure


def describe(accuracy: Floats, clusters: dict[int, Floats]) -> str:
    parts = [
        f"{name}: mean {v.mean():.1f} %, median {np.median(v):.1f} %, a tenth at most {np.percentile(v, 10):.1f} %"
        for name, _, v in rows(accuracy, clusters)
    ]
    return f"Histograms of the test accuracy of {len(accuracy)} clients. {'; '.join(parts)}."
