"""The comparison table: on a terminal, as CSV and as Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Rows = Sequence[tuple[str, Sequence[Mapping[str, Any]]]]  # per algorithm: the last metrics of each seed


@dataclass(frozen=True)
class Column:
    title: str
    key: str
    scale: float = 1.0
    digits: int = 2
    detail: bool = False  # shown where costs are the subject


COLUMNS = (
    Column("clusters", "clusters", digits=1),
    Column("accuracy %", "accuracy", 100, 1),
    Column("balanced %", "balanced_accuracy", 100, 1),
    Column("weighted %", "weighted_accuracy", 100, 1),
    Column("WAS", "was"),
    Column("WADB", "wadb"),
    Column("Rand", "rand"),
    Column("adj. Rand", "ari"),
    Column("clients trained", "client_updates", digits=0),
    Column("MB down", "bytes_down", 1e-6, 1),
    Column("MB up", "bytes_up", 1e-6, 1),
    Column("steps", "gradient_steps", digits=0, detail=True),
    Column("evaluations", "evaluations", digits=0, detail=True),
    Column("server s", "server_seconds", digits=1, detail=True),
    Column("state MB", "state_bytes", 1e-6, 1, detail=True),
    Column("seconds", "seconds", digits=1),
)


@dataclass(frozen=True)
class Table:
    head: list[str]
    rows: list[list[str]]


def comparison_table(rows: Rows, detail: bool = True) -> Table:
    """Mean and, over several seeds, standard deviation; a column that no run has is left out."""
    columns = [c for c in COLUMNS if any(c.key in m for _, seeds in rows for m in seeds) and (detail or not c.detail)]
    return Table(["algorithm", *(c.title for c in columns)], [[name, *(_cell(c, m) for c in columns)] for name, m in rows])


def _cell(column: Column, seeds: Sequence[Mapping[str, Any]]) -> str:
    values = [column.scale * float(m[column.key]) for m in seeds if column.key in m]
    if not values:
        return "–"
    digits = 0 if column.key == "clusters" and all(v == int(v) for v in values) and len(set(values)) == 1 else column.digits
    text = f"{statistics.mean(values):,.{digits}f}"
    if len(set(values)) > 1 and all(map(math.isfinite, values)):  # clusters that coincide have an infinite WADB
        text += f" ± {statistics.stdev(values):,.{digits}f}"
    return text if len(values) == len(seeds) else f"{text} ({len(values)}/{len(seeds)})"


def show(table: Table) -> None:
    """On stdout, as wide as it needs to be: a pipe must not cut columns."""
    from rich.console import Console
    from rich.table import Table as Rich

    rich = Rich(box=None, pad_edge=False, header_style="bold")
    for i, title in enumerate(table.head):
        rich.add_column(title, justify="left" if i == 0 else "right", no_wrap=True)
    for row in table.rows:
        rich.add_row(*row)
    console = Console()
    needed = sum(max(len(r[i]) for r in [table.head, *table.rows]) + 2 for i in range(len(table.head)))
    Console(width=max(console.width, needed)).print(rich)


def markdown(table: Table) -> str:
    lines = ["| " + " | ".join(table.head) + " |", "|" + "|".join(["---"] + ["---:"] * (len(table.head) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in table.rows]) + "\n"
