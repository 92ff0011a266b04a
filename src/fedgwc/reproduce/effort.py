"""Runs of one recipe at equal effort: that of the cheapest of them.

A round of a clustered method trains more clients than one of FedAvg, so equal rounds are unequal work.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from fedgwc.reproduce.outcome import Outcome
from fedgwc.reproduce.paper import ACCURACIES, METRICS
from fedgwc.runs.budget import spent
from fedgwc.runs.tables import Table


def effort_table(results: Path, outcomes: Sequence[Outcome]) -> Table:
    """Tabulate accuracies at the effort of the cheapest run.

    At the last evaluation before any run had trained more clients than the one that trained fewest in all.
    """
    rows = []
    for _, group in groupby(sorted(outcomes, key=lambda o: o.recipe), key=lambda o: o.recipe):
        runs = list(group)
        most = min(spent(o.last, "updates") for o in runs)
        for run in runs if len(runs) > 1 else ():
            if then := reached(run, most):
                counts = [f"{then[key]:,.0f}" for key in ("client_updates", "round", "clusters")]
                shown = [f"{METRICS[m].scale * then[m]:.{METRICS[m].digits}f}" for m in ACCURACIES]
                rows.append([run.algorithm, run.path.relative_to(results).as_posix(), *counts, *shown])
    return Table(
        ["method", "folder in results/", "clients trained", "round", "clusters", *(METRICS[m].title for m in ACCURACIES)], rows
    )


def reached(run: Outcome, limit: float, measure: str = "updates") -> dict[str, Any] | None:
    """Return a run's last evaluation within a budget."""
    return next((row for row in reversed(run.course) if spent(row, measure) <= limit), None)
