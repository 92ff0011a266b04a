"""Accuracy over rounds, with every split marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedgwc.core.types import Floats
from fedgwc.report.data import Node, Run
from fedgwc.report.figures.axes import rounds_axis
from fedgwc.report.figures.labels import Ends, beside
from fedgwc.report.theme import DASHES, INK, SOFT, canvas, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = ((INK, "-", "o", 2.0), (SOFT, DASHES[1], "s", 1.3), (SOFT, DASHES[2], "D", 1.3))  # balanced, plain and weighted
KINDS = {"balanced_accuracy": "balanced", "accuracy": "plain", "weighted_accuracy": "weighted"}


def series(run: Run, key: str, scale: float = 1.0) -> tuple[Floats, Floats]:
    """Return (rounds, values) of the evaluations that have `key`."""
    rows = [(r["round"], r[key] * scale) for r in run.metrics if isinstance(r.get(key), int | float)]
    points = np.array(rows, np.float64).reshape(-1, 2)
    return points[:, 0], points[:, 1]


def leading(run: Run) -> str:
    """Choose the accuracy to lead with.

    Balanced, unless the clients of a real federation did not report it.
    """
    return "balanced_accuracy" if len(series(run, "balanced_accuracy")[0]) else "accuracy"


@styled
def draw(run: Run) -> Figure:
    """Draw accuracy over rounds, without colours.

    In a run's figures these are for clusters.
    """
    figure, ax = canvas()
    ends: Ends = {}
    for (key, name), (colour, dash, marker, width) in zip(KINDS.items(), LOOKS, strict=True):
        x, y = series(run, key, 100)
        if len(x):
            look: dict[str, Any] = {"color": colour, "linestyle": dash, "marker": marker}
            ax.plot(x, y, linewidth=width, markevery=[-1], markersize=5, clip_on=False, zorder=4 - width, **look)
            ends[f"{name}: {y[-1]:.1f}"] = (x[-1], y[-1], look)
    ax.set(ylabel="test accuracy, %")
    rounds_axis(ax, run.last["round"])
    ax.grid(axis="y")
    mark_splits(ax, run)
    beside(ax, ends, run.last["round"])
    return figure


def mark_splits(ax: Axes, run: Run) -> None:
    """Mark every split by a vertical line.

    Names stand on top as long as there is room for them.
    """
    room, width, right = -np.inf, run.last["round"], 0.0
    for number in sorted({s.ended for s in run.splits if s.ended is not None}):
        names = ", ".join(split_name(run, s) for s in run.splits if s.ended == number)
        ax.axvline(number, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
        length = width * 0.02 * len(names)
        right = number + length / 2
        if number - length / 2 > room and length < width / 3:
            at = min(max(number, length / 2), width - length / 2)
            ax.annotate(names, (at, 1.0), (0, 3), ("data", "axes fraction"), "offset points", ha="center", color=SOFT, fontsize=8)
            room = right


def split_name(run: Run, node: Node) -> str:
    return f"{node.id} → {' + '.join(str(c.id) for c in run.children(node.id))}"


def describe(run: Run) -> str:
    x, y = series(run, "balanced_accuracy", 100)
    if not len(x):
        return "Accuracy over rounds."
    text = f"Lines over {run.last['round']} rounds. Balanced accuracy starts at {y[0]:.1f} % and ends at {y[-1]:.1f} %"
    others = [
        f"{name} accuracy ends at {series(run, key, 100)[1][-1]:.1f} %" for key, name in KINDS.items() if name != "balanced"
    ]
    parts = [text, *others] if all(len(series(run, key)[1]) for key in KINDS) else [text]
    return "; ".join(parts) + ". " + (jumps(run) or "No split.")


def jumps(run: Run) -> str:
    """Compare accuracies before and after the rounds with splits.

    At the last evaluation before each, and a tenth of the run later or before the next.
    """
    x, y = series(run, leading(run), 100)
    changes: list[str] = []
    numbers = sorted({s.ended for s in run.splits if s.ended is not None}) if len(x) else []
    for number, following in zip(numbers[:3], [*numbers[1:], np.inf], strict=False):
        before, after = y[x <= number], y[(x > number) & (x <= min(number + 0.1 * x[-1], following))]
        if len(before) and len(after):
            changes.append(f"around the split at round {number:,} it goes from {before[-1]:.1f} % to {after[-1]:.1f} %")
    more = f"; {len(numbers) - 3} more rounds with splits" if len(numbers) > 3 else ""
    return ("; ".join(changes) + more + ".").capitalize() if changes else ""
