"""What recorded losses look like: by local step, between clients, as a cloud of clients that falls in two, and as echoes.

    python -m benchmarks.evidence_figures TRACES

One recording of each federation in TRACES (laid out as for `benchmarks.evidence`); the figures go to docs/figures.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.evidence import ROOT, recordings
from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.auto.cuts import best_cut, seen_across
from fedgwc.algorithms.auto.readings import Readings
from fedgwc.algorithms.auto.windows import places
from fedgwc.core.types import Floats
from fedgwc.report.theme import LIGHT, MARKERS, NEUTRAL, PAPER, house_style, looks
from fedgwc.runs.replay import Trace, read_trace, replay

FIGURES = ROOT / "docs/figures"
NEVER = Auto(gain=np.inf, drift=np.inf)  # divides nobody


def steps(traces: dict[str, Trace]) -> Figure:
    """Losses of local steps 1, 2, ..., over the first: the mean of rounds 301 to 1,000."""
    figure, axes = plt.subplots(figsize=(6.8, 3.2), layout="constrained")
    for look, (name, trace) in zip(_looks(traces), traces.items(), strict=True):
        mean = np.nanmean(trace.losses[300:1000].astype(np.float64), (0, 1))
        axes.plot(np.arange(len(mean)) + 1, mean / mean[0], label=name, ms=4, **look)
    axes.axhline(1 / (1 + Auto().drift), color=NEUTRAL, lw=0.8, ls="--")
    axes.set(xlabel="local step", ylabel="loss over that of step 1", ylim=(0, 1.1))
    _legend(axes)
    return figure


def contrasts(traces: dict[str, Trace], width: int = 100) -> Figure:
    """The median over `width` rounds of the variance between clients over that between a client's batches."""
    figure, axes = plt.subplots(figsize=(6.8, 3.2), layout="constrained")
    for look, (name, trace) in zip(_looks(traces), traces.items(), strict=True):
        ratios = [np.divide(*Readings(losses).variances()) for losses in trace.losses]
        spans = [np.median(ratios[t : t + width]) for t in range(0, len(ratios) - width + 1, width)]
        at = width * (np.arange(len(spans)) + 1)
        axes.plot(at, spans, label=name, ms=3, lw=1.2, markevery=6, **look)
    axes.axhline(1 + Auto().contrast, color=NEUTRAL, lw=0.8, ls="--")
    axes.set(xlabel="round", ylabel="variance between clients\nover that between batches", yscale="log")
    axes.set_yticks(ticks := [1, 2, 3, 5, 10, 20, 40], [str(t) for t in ticks])
    axes.minorticks_off()
    _legend(axes)
    return figure


def _looks(traces: dict[str, Trace]) -> list[dict[str, Any]]:
    return looks(LIGHT[i % len(LIGHT)] for i in range(len(traces)))


def _legend(axes: Axes) -> None:
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def echoes(traces: dict[str, Trace]) -> Figure:
    """How much pairs of clients help each other: of two kinds, and by the classes they share."""
    kinds, mixes = traces["50 clean, 50 blurred"], traces["alpha 0.5"]
    assert kinds.truth is not None
    assert mixes.counts is not None
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.8, 2.8), layout="constrained")
    order = np.argsort(kinds.truth, kind="stable")
    blocks = _helped(kinds)[np.ix_(order, order)].reshape(20, 5, 20, 5)
    np.einsum("aiaj->aij", blocks)[:, range(5), range(5)] = np.nan  # how much clients help themselves
    means = np.nanmean(blocks, (1, 3))
    shown = left.imshow(means, cmap="RdBu_r", vmin=-(most := np.abs(means).max()), vmax=most, extent=(0, 100, 100, 0))
    figure.colorbar(shown, ax=left, label="echo, mean of 5 x 5 pairs")
    left.set(title="50 clean, 50 blurred", xlabel="client", ylabel="client")
    share = mixes.counts / mixes.counts.sum(1, keepdims=True)
    apart = np.triu_indices(mixes.n_clients, 1)
    shared = np.minimum(share[:, None], share).sum(2)[apart]
    right.plot(shared, _helped(mixes)[apart], ".", color=LIGHT[0], ms=2, alpha=0.5)
    right.set(title="alpha 0.5", xlabel="share of classes in common", ylabel="echo")
    for axes in (left, right):
        axes.title.set_fontsize(8)
    return figure


def _helped(trace: Trace) -> Floats:
    echo: Floats | None = replay(trace, NEVER).clusters[0].echo
    assert echo is not None
    return (echo + echo.T) / 2


def clouds(traces: dict[str, Trace], rounds: int = 4000) -> Figure:
    """Clients after so many rounds, along the line in which the best groups differ most."""
    figure, panels = plt.subplots(1, len(traces), figsize=(2.9 * len(traces), 2.9), layout="constrained", squeeze=False)
    for axes, (name, trace) in zip(panels[0], traces.items(), strict=True):
        _cloud(axes, name, trace, rounds)
    return figure


def _cloud(axes: Axes, name: str, trace: Trace, rounds: int) -> None:
    cut_short = Trace(trace.ids[:rounds], trace.losses[:rounds], trace.n_clients, trace.truth)
    _, points = places(replay(cut_short, NEVER).clusters[0], NEVER.directions)
    cut = best_cut(points, NEVER.min_size, NEVER.n_max)
    assert cut is not None
    seen = seen_across(points, cut)
    truth = np.zeros(trace.n_clients, np.int64) if trace.truth is None else trace.truth
    for group in np.unique(truth):
        at = truth == group
        axes.plot(*seen[at].T, MARKERS[group], color=LIGHT[group], ms=4, alpha=0.8)
    axes.set(title=f"{name}\ngain {cut.gain:.0f}", xticks=[], yticks=[])
    axes.title.set_fontsize(8)


def main(place: Path) -> None:
    traces: dict[str, Trace] = {}
    for federation, path in recordings(place):
        if federation not in traces:
            traces[federation] = read_trace(path)
    grouped = {name: t for name, t in traces.items() if "clean" in name or "weaker" in name or name.startswith("homogeneous")}
    with house_style(**{"figure.facecolor": PAPER}):
        figures = {"steps": steps(traces), "contrast": contrasts(traces), "clouds": clouds(grouped), "echo": echoes(traces)}
        for name, figure in figures.items():
            figure.savefig(FIGURES / f"evidence-{name}.png", dpi=110)
            print(FIGURES / f"evidence-{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
