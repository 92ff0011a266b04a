"""Methods side by side: mean over seeds, spread, and where each one split."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgwc.core import Floats
from fedgwc.report.figures.labels import beside
from fedgwc.report.methods import Method
from fedgwc.report.theme import LIGHT, PAPER, WIDE, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPES = "osD^PX*<>ph"  # one per method; a triangle on its tip marks splits


@styled
def draw(methods: list[Method], key: str, label: str, *, traffic: bool = False) -> Figure:
    """`key` in per cent over rounds or, with `traffic`, over the megabytes sent to and from clients."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter
    from matplotlib.transforms import ScaledTranslation

    figure, ax = canvas((WIDE[0], WIDE[1] + 0.4))
    ends: dict[str, tuple[float, float, str]] = {}
    right = 0.0
    for i, method in enumerate(methods):
        at, values = method.curve(key, 100)
        if not len(at):
            continue
        colour, marker = LIGHT[i % len(LIGHT)], SHAPES[i % len(SHAPES)]
        x = megabytes(method, at) if traffic else at
        mean, spread = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else np.zeros(len(at))
        if len(values) > 1:
            ax.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)
        every = max(1, len(x) // 8)
        edge: dict[str, Any] = {"markeredgecolor": PAPER, "markeredgewidth": 0.7}
        ax.plot(
            x, mean, color=colour, marker=marker, markevery=(i * every // 4 % every, every), markersize=6.5, linewidth=1.7, **edge
        )
        where = np.array(method.splits, np.float64)
        if len(where):
            above = ax.transData + ScaledTranslation(0, 8 / 72, figure.dpi_scale_trans)
            ax.plot(np.interp(where, at, x), np.interp(where, at, mean), "v", color=colour, markersize=6, transform=above, **edge)
        ends[_short(method.name, ends)] = (float(x[-1]), float(mean[-1]), colour)
        right = max(right, float(x[-1]))
    ax.set(xlabel="megabytes sent, both ways" if traffic else "round", ylabel=label, xlim=(0, right or 1))
    ax.xaxis.set_major_locator(MaxNLocator(5))  # names stand beside the plot, so there is less room below it
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    ax.grid(axis="y")
    beside(ax, ends, right)
    return figure


def _short(name: str, taken: Container[str]) -> str:
    """At most 26 letters, where that tells it from the others."""
    short = name if len(name) <= 26 else name[:25] + "…"
    return name if short in taken else short


def megabytes(method: Method, at: Floats) -> Floats:
    """Mean over seeds of what had been sent, both ways, by the rounds `at`."""
    total = np.zeros(len(at))
    for key in ("bytes_down", "bytes_up"):
        rounds, values = method.curve(key, 1e-6)
        total += np.interp(at, rounds, values.mean(0)) if len(rounds) else 0.0
    return total


def describe(methods: list[Method], key: str) -> str:
    parts = []
    for method in methods:
        at, values = method.curve(key, 100)
        if not len(at):
            continue
        spread = f" ± {values[:, -1].std(ddof=1):.1f}" if len(values) > 1 else ""
        where = f", splits at rounds {', '.join(map(str, method.splits[:8]))}" if method.splits else ""
        parts.append(f"{method.name} ends at {values[:, -1].mean():.1f}{spread} % after {at[-1]:.0f} rounds{where}")
    return f"One line per method. {'; '.join(parts)}."
