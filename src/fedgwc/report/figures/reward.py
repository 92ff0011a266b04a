"""The Gaussian reward of one cohort: losses, mean, spread, and two clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedgwc.report.cohort import Cohort
from fedgwc.report.figures.labels import Ends, beside
from fedgwc.report.theme import DASHES, INK, NEUTRAL, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def draw(cohort: Cohort, colour: dict[int, str]) -> Figure:
    """Draw the cohort; `colour` is that of each client's cluster."""
    figure, ax = canvas()
    steps = np.arange(1, cohort.losses.shape[1] + 1)
    high, low = int(cohort.rewards.argmax()), int(cohort.rewards.argmin())
    mean, sigma = cohort.mean, cohort.sigma
    ax.fill_between(steps, mean - sigma, mean + sigma, color=NEUTRAL, alpha=0.22, linewidth=0, label="mean ± σ")
    for i, losses in enumerate(cohort.losses):
        if i not in (high, low):
            ax.plot(
                steps,
                losses,
                color=NEUTRAL,
                linewidth=0.8,
                alpha=0.7,
                label="others" if i == min({0, 1, 2} - {high, low}) else None,
            )
    ax.plot(steps, mean, color=INK, linestyle=(0, (4, 2)), linewidth=1.6, label="mean")
    ends: Ends = {}
    for i, marker, dash in ((high, "o", "-"), (low, "s", DASHES[1])):
        look: dict[str, Any] = {"color": colour[int(cohort.clients[i])], "marker": marker, "linestyle": dash}
        ax.plot(steps, cohort.losses[i], markersize=5.5, linewidth=2, clip_on=False, **look)
        ends[f"client {cohort.clients[i]}:\nreward {cohort.rewards[i]:.2f}"] = (steps[-1], cohort.losses[i][-1], look)
    ax.set(xlabel="local step", ylabel="loss", xticks=steps if len(steps) <= 12 else steps[:: len(steps) // 10])
    ax.grid(axis="y")
    ax.legend(ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
    ax.set_xlim(steps[0], steps[-1])
    if cohort.losses.min() >= 0:
        ax.set_ylim(bottom=max(0, ax.get_ylim()[0]))  # where no loss can be, though the mean less a deviation may
    beside(ax, ends, steps[-1], gap=23)
    return figure


def describe(cohort: Cohort) -> str:
    high, low = int(cohort.rewards.argmax()), int(cohort.rewards.argmin())
    mean, sigma = cohort.mean, cohort.sigma

    def inside(i: int) -> int:
        return int((np.abs(cohort.losses[i] - mean) <= sigma).sum())

    n = len(mean)
    return (
        f"Losses of {len(cohort.clients)} clients over {n} local steps in round {cohort.round}, with the mean and a band of one "
        f"standard deviation. Client {cohort.clients[high]} is inside the band at {inside(high)} of {n} steps and has reward "
        f"{cohort.rewards[high]:.2f}; client {cohort.clients[low]} at {inside(low)} of {n} and has "
        f"reward {cohort.rewards[low]:.2f}."
    )
