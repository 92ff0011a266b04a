"""Methods ranked over several conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedgwc.comparison.contrasts import Panel
from fedgwc.metrics.ranks import FEWEST_METHODS, FEWEST_SETS, average_ranks, critical_difference, friedman
from fedgwc.runs.tables import Table


@dataclass(frozen=True)
class Ranks:
    """Methods' average ranks over several conditions."""

    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    conditions: int
    critical_difference: float
    p: float  # Friedman's


def ranks_of(panels: Sequence[Panel]) -> Ranks | None:
    """Rank methods by their mean scores in several panels.

    None where fewer than three methods are in all of at least two.
    """
    scores = [_by_algorithm(panel) for panel in panels]
    methods = [name for name in (scores[0] if scores else ()) if all(name in other for other in scores)]
    if len(methods) < FEWEST_METHODS or len(panels) < FEWEST_SETS:
        return None
    table = np.array([[of[name] for name in methods] for of in scores])
    if np.isnan(table).any():
        return None
    ranks = average_ranks(table)
    spread = critical_difference(len(methods), len(panels))
    order = np.argsort(ranks, kind="stable")
    return Ranks(tuple(methods[i] for i in order), tuple(ranks[order].tolist()), len(panels), spread, friedman(table))


def _by_algorithm(panel: Panel) -> dict[str, float]:
    """Return mean scores of the algorithms with one setting."""
    names = [line.candidate.algorithm for line in panel.lines]
    return {name: line.mean for name, line in zip(names, panel.lines, strict=True) if names.count(name) == 1}


def ranks_table(ranks: Ranks) -> Table:
    """Tabulate average ranks, the best first."""
    return Table(["method", "average rank"], [[m, f"{r:.2f}"] for m, r in zip(ranks.methods, ranks.ranks, strict=True)])


def ranks_note(ranks: Ranks) -> str:
    """Explain average ranks."""
    return (
        f"Ranks of mean scores over {ranks.conditions} conditions, 1 is best. Methods less than {ranks.critical_difference:.2f} "
        f"apart are not shown to differ (Nemenyi, 95 %); Friedman's p of no difference at all is {ranks.p:.2g}."
    )
