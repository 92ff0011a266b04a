"""A federation as a figure: bars for the clients' sizes, and below them bubbles for their samples of each class."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgwc.core.errors import InputError
from fedgwc.data import Federation
from fedgwc.io.atomic import write_atomically
from fedgwc.report.theme import INK, LIGHT, NEUTRAL, house_style, needs_extra, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"dpi": 200, "facecolor": "white", "metadata": {"Software": None}},
    ".svg": {"metadata": {"Date": None, "Creator": None}},
}


def write_figure(federation: Federation, path: Path) -> None:
    """Write the figure as a PNG or SVG file."""
    if path.suffix not in FORMATS:
        raise InputError(f"--out must end in {' or '.join(FORMATS)}, got {path}")
    needs_extra()
    content = BytesIO()
    with house_style():  # the ids in an SVG follow from it, and the file is always the same
        draw(federation).savefig(content, format=path.suffix[1:], **FORMATS[path.suffix])
    write_atomically(path, content.getvalue())


def draw(federation: Federation) -> Figure:
    """Draw all clients; a bubble's area is its number of samples."""
    from matplotlib.ticker import MaxNLocator

    counts, groups = federation.class_counts(), federation.known_groups
    n_clients, n_classes = counts.shape
    wide, high = float(np.clip(0.08 * n_clients, 5.2, 16)), float(np.clip(0.16 * n_classes, 1.6, 8))
    figure, [sizes, bubbles] = panels(2, (wide, high + 1.4), height_ratios=[1.0, high])
    client, label = np.nonzero(counts)
    cell = 72 * min(0.85 * wide / n_clients, 0.8 * high / n_classes)
    area = max(cell, 3.0) ** 2 * counts[client, label] / counts.max()
    colours = np.array(LIGHT)[groups % len(LIGHT)]
    sizes.bar(np.arange(n_clients), counts.sum(1), width=0.8, color=colours)
    bubbles.scatter(client, label, s=area, c=colours[client], linewidths=0)
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    for start in starts if len(starts) > 1 else []:  # colours come again, and not everybody sees them
        sizes.annotate(f"group {groups[start]}", (start - 0.5, 1.02), xycoords=("data", "axes fraction"), fontsize=8.5, color=INK)
        for ax in (sizes, bubbles):
            ax.axvline(start - 0.5, color=NEUTRAL, linewidth=0.8)
    sizes.set_ylabel("samples")
    bubbles.set(xlabel="client", ylabel="class", xlim=(-0.5, n_clients - 0.5), ylim=(-0.7, n_classes - 0.3))
    for axis in (bubbles.xaxis, bubbles.yaxis):
        axis.set_major_locator(MaxNLocator(10, integer=True))
    return figure
