"""Clients in the plane of their spectral embedding.

Colour says the cluster, the marker's shape the known group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedgwc.algorithms.spectral import embedding
from fedgwc.core.types import Floats, Ids
from fedgwc.report.theme import GRID, MARKERS, PAPER, SOFT, SQUARE, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plane(W: Floats) -> Floats:
    """Project affinities W [K, K] on a plane [K, 2].

    By the second and third leading eigenvectors, as a random walk on W sees them.

    The first one is constant and shows nothing. Signs are fixed by each column's largest entry.
    """
    n = min(3, len(W))
    degree = W.sum(1) - W.diagonal()
    U = embedding(W, n)[:, 1:] / np.sqrt(np.maximum(degree, 1e-12))[:, None]
    U = np.pad(U, ((0, 0), (0, 2 - U.shape[1])))
    largest = U[np.abs(U).argmax(0), [0, 1]]
    scale = np.where(np.abs(largest) > 0, largest, 1.0)
    return np.asarray(U / scale, np.float64)


@styled
def draw(points: Floats, groups: Ids, colour: dict[int, str], truth: Ids | None, axes: tuple[str, str]) -> Figure:
    """Draw clients at points [K, 2] by cluster and known group.

    The cluster [K] and, where known, the true group [K] of each client; the axes' names.
    """
    figure, ax = canvas(SQUARE)
    for cluster in np.unique(groups):
        for kind in np.unique(truth) if truth is not None else [0]:
            at = (groups == cluster) & (True if truth is None else truth == kind)
            marker = MARKERS[int(kind) % len(MARKERS)]
            face = colour.get(int(cluster), SOFT)
            ax.scatter(
                points[at, 0], points[at, 1], s=38, marker=marker, color=face, edgecolors=PAPER, linewidths=0.6, alpha=0.85
            )
        ax.scatter([], [], s=60, marker="_", linewidths=5, color=face, label=f"cluster {cluster} ({(groups == cluster).sum()})")
    ax.margins(0.12)
    ax.spines[:].set_visible(True)
    ax.spines[:].set_color(GRID)
    ax.set(xlabel=axes[0], ylabel=axes[1], xticks=[], yticks=[])
    if truth is not None:
        for kind in np.unique(truth):
            ax.scatter([], [], s=38, marker=MARKERS[int(kind) % len(MARKERS)], color=SOFT, label=f"true group {kind}")
    figure.legend(loc="outside upper left", ncols=3, handletextpad=0.2, columnspacing=1.0)
    return figure


def describe(groups: Ids, truth: Ids | None) -> str:
    parts = []
    for cluster in np.unique(groups)[:10]:
        inside = groups == cluster
        text = f"cluster {cluster} has {inside.sum()} clients"
        if truth is not None:
            kinds, n = np.unique(truth[inside], return_counts=True)
            text += " (" + ", ".join(f"{m} of true group {k}" for k, m in zip(kinds, n, strict=True)) + ")"
        parts.append(text)
    return f"Scatter plot of {len(groups)} clients: {'; '.join(parts)}."
