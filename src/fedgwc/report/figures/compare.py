"""Methods side by side: mean over seeds, spread, and where each one split."""

from __future__ import annotations

from collections import Counter
from itertools import chain, count, cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgwc.core import Floats
from fedgwc.report.figures.labels import Ends, beside
from fedgwc.report.methods import Method
from fedgwc.report.theme import LIGHT, PAPER, WIDE, canvas, looks, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 25  # letters of a name; a longer one would take the plot's room


@styled
def draw(methods: list[Method], key: str, label: str, *, traffic: bool = False) -> Figure:
    """`key` in per cent over rounds or, with `traffic`, over the megabytes sent to and from clients."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter
    from matplotlib.transforms import ScaledTranslation

    figure, ax = canvas((WIDE[0], WIDE[1] + 0.4 + 0.15 * max(0, len(methods) - 6)))
    ends: Ends = {}
    right = 0.0
    names = short_names([m.name for m in methods])
    for i, (method, name, look) in enumerate(zip(methods, names, looks(islice(cycle(LIGHT), len(methods))), strict=True)):
        at, values = method.curve(key, 100)
        if not len(at):
            continue
        x, colour = megabytes(method, at) if traffic else at, look["color"]
        mean, spread = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else np.zeros(len(at))
        if len(values) > 1:
            ax.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)
        every = max(1, len(x) // 8)
        edge: dict[str, Any] = {"markeredgecolor": PAPER, "markeredgewidth": 0.5}
        ax.plot(x, mean, markevery=(i * every // 4 % every, every), markersize=5.5, linewidth=1.3, **edge, **look)
        where = np.array(method.splits, np.float64)
        if len(where):
            above = ax.transData + ScaledTranslation(0, 8 / 72, figure.dpi_scale_trans)
            ax.plot(np.interp(where, at, x), np.interp(where, at, mean), "v", color=colour, markersize=4, transform=above, **edge)
        ends[name] = (float(x[-1]), float(mean[-1]), look)
        right = max(right, float(x[-1]))
    ax.set(xlabel="megabytes sent, both ways" if traffic else "round", ylabel=label, xlim=(0, right or 1))
    ax.xaxis.set_major_locator(MaxNLocator(5 if right < 1e6 else 3))  # names beside the plot leave less room below it
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    ax.grid(axis="y")
    beside(ax, ends, right)
    return figure


def short_names(names: list[str]) -> list[str]:
    """No two alike, of about 26 letters: a long one by a setting that no other has, else by its first ones, else numbered."""
    words = [name.split(" ") for name in names]
    used = Counter(word for each in words for word in each)
    found: list[str] = []
    for name, (first, *rest) in zip(names, words, strict=True):
        cut = name[:LONGEST].rstrip()
        own = [f"{first} … {word}"[: LONGEST + 5] for word in rest if used[word] == 1]
        shorter = [*own, f"{cut.rsplit(' ', 1)[0]} …", f"{cut}…"] if len(name) > LONGEST + 1 else [name]
        numbered = (f"{shorter[-1]} {i}" for i in count(2))
        found.append(next(n for n in chain(shorter, numbered) if n not in found))
    return found


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
