"""Methods side by side: mean over seeds, spread, and splits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain, count, cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgwc.core.types import Floats
from fedgwc.report.figures.axes import log_axis, rounds_axis
from fedgwc.report.figures.labels import Ends, beside
from fedgwc.report.methods import Method
from fedgwc.report.theme import LIGHT, PAPER, WIDE, canvas, looks, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 25  # letters of a name; a longer one would take the plot's room
EARLY = 0.05  # of the rounds, whose steep rise may begin below the plot: it would press all that follows into a few lines
UNITS = ((1e12, "terabytes"), (1e9, "gigabytes"), (1e6, "megabytes"), (1e3, "kilobytes"))


@dataclass(frozen=True)
class Cost:
    """An axis of effort."""

    keys: tuple[str, ...]  # of metrics.jsonl, whose sum it is
    title: str
    label: str


COSTS = {  # without seconds: of runs beside each other in processes, the first pays for starting them
    "client_updates": Cost(("client_updates",), "by clients trained", "clients trained, in all rounds"),
    "gradient_steps": Cost(("gradient_steps",), "by local steps", "local steps of all clients"),
    "bytes": Cost(("bytes_down", "bytes_up"), "by what was sent", "{unit} sent, both ways"),
}
PREFERRED = dict(zip(("fedavg", "auto", "ifca", "fesem", "alone", "fedgwc", "cfl", "fedgwc-release"), LIGHT, strict=True))


@styled
def draw(methods: list[Method], key: str, label: str, *, over: str | None = None) -> Figure:
    """Draw `key` in per cent over rounds, or over what they cost.

    `over` is a name in `COSTS`.
    """
    from matplotlib.transforms import ScaledTranslation

    figure, ax = canvas((WIDE[0], WIDE[1] + 0.4 + 0.15 * max(0, len(methods) - 6)))
    ends: Ends = {}
    left, right, low, high = np.inf, 0.0, np.inf, -np.inf
    names = short_names([m.name for m in methods])
    scale, unit = _scale(methods, key, over)
    for i, (method, name, look) in enumerate(zip(methods, names, looks(method_colours(methods)), strict=True)):
        at, values = method.curve(key, 100)
        if not len(at):
            continue
        x, colour = cost_of(method, at, over) / scale if over else at, look["color"]
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
        ends[f"{name}: {mean[-1]:.1f}"] = (float(x[-1]), float(mean[-1]), look)
        left, right = min(left, float(x[x > 0].min(initial=np.inf))), max(right, float(x[-1]))
        later = at >= EARLY * at[-1]
        low, high = min(low, np.fmin.reduce((mean - spread)[later])), max(high, np.fmax.reduce(mean + spread))
    ax.set(ylabel=label)
    if over:  # methods differ in it by factors
        ax.set(xlabel=COSTS[over].label.format(unit=unit), xlim=(left, right) if 0 < left < right else (0.1, 1))
        log_axis(ax.xaxis)
    else:
        rounds_axis(ax, right or 1, 5)  # names beside the plot leave less room below it
        pad = 0.06 * (high - low) or 1.0
        ax.set_ylim(low - pad, high + pad) if low <= high else None  # else no accuracy is a number
    ax.grid(axis="y")
    beside(ax, ends, right)
    return figure


def short_names(names: list[str]) -> list[str]:
    """Shorten names to about 26 letters, no two alike.

    A long one by a setting that no other has, else by its first ones, else numbered.
    """
    words = [name.split(" ") for name in names]
    used = Counter(word for each in words for word in each)
    found: list[str] = []
    for name, (first, *rest) in zip(names, words, strict=True):
        cut = name[:LONGEST].rstrip()
        candidate = [f"{first} … {word}"[: LONGEST + 5] for word in rest if used[word] == 1]
        shorter = [*candidate, f"{cut.rsplit(' ', 1)[0]} …", f"{cut}…"] if len(name) > LONGEST + 1 else [name]
        numbered = (f"{shorter[-1]} {i}" for i in count(2))
        found.append(next(n for n in chain(shorter, numbered) if n not in found))
    return found


def method_colours(methods: list[Method]) -> list[str]:
    """Choose a colour per method, by algorithm the same in every report.

    Unless another method has it; then one that is still free.
    """
    found: list[str | None] = []
    for candidate in (PREFERRED.get(m.runs[0].algorithm) for m in methods):
        found.append(None if candidate in found else candidate)
    free = chain((c for c in LIGHT if c not in found), cycle(LIGHT))
    return [next(free) if colour is None else colour for colour in found]


def unit_of(largest: float) -> tuple[float, str]:
    """Choose the unit in which `largest` bytes are a short number.

    As (bytes, name).
    """
    return next(((size, name) for size, name in UNITS if largest >= size), UNITS[-1])


def _scale(methods: list[Method], key: str, over: str | None) -> tuple[float, str]:
    """Choose the unit of a cost axis, as (how many, name)."""
    if over != "bytes":
        return 1.0, ""
    return unit_of(max((cost_of(m, at, over)[-1] for m in methods if len(at := m.curve(key)[0])), default=0.0))


def cost_of(method: Method, at: Floats, over: str) -> Floats:
    """Average over seeds what rounds up to `at` cost."""
    total = np.zeros(len(at))
    for key in COSTS[over].keys:
        rounds, values = method.curve(key)
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
