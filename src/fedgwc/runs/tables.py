"""Tables on a terminal, as CSV and as Markdown."""

from __future__ import annotations

import math
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Rows = Sequence[tuple[str, Sequence[Mapping[str, Any]]]]  # per algorithm: the last metrics of each seed


@dataclass(frozen=True)
class Column:
    title: str
    key: str
    scale: float = 1.0
    digits: int = 2
    detail: bool = False  # shown where costs are the subject

    def digits_of(self, value: float) -> int:
        """Choose the number of decimals.

        None for numbers from 1,000 on, whose tenths nobody reads.
        """
        return self.digits if abs(value) < 1000 else 0


COLUMNS = (
    Column("clusters", "clusters", digits=1),
    Column("accuracy %", "accuracy", 100, 1),
    Column("balanced %", "balanced_accuracy", 100, 1),
    Column("weighted %", "weighted_accuracy", 100, 1),
    Column("spread %", "accuracy_std", 100, 1, detail=True),
    Column("10th percentile %", "accuracy_p10", 100, 1, detail=True),
    Column("worst client %", "accuracy_worst", 100, 1, detail=True),
    Column("newcomers %", "newcomers_accuracy", 100, 1, detail=True),
    Column("newcomers balanced %", "newcomers_balanced_accuracy", 100, 1, detail=True),
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
COSTS = "clients trained"  # the first column on what a run took
NUMBER = re.compile(
    r"–?|[+−-]?(\d[\d,.]*(e[+-]?\d+)?|inf|nan)( ?%| [kMG]B)?( ± [\d,.]+)?( \([^)]*\))?( \[[^\]]*\])?|\[[^\]]*\]|< [\d.]+"
)
PROSE = 24  # characters below which a column of words is not made narrower


@dataclass(frozen=True)
class Table:
    head: list[str]
    rows: list[list[str]]
    bold: frozenset[tuple[int, int]] = field(default=frozenset())  # (row, column) of cells that stand out


def comparison_table(rows: Rows, detail: bool = True) -> Table:
    """Tabulate mean and, over several seeds, standard deviation.

    A column that no run has is left out.
    """
    columns = [c for c in COLUMNS if any(c.key in m for _, seeds in rows for m in seeds) and (detail or not c.detail)]
    return Table(["algorithm", *(c.title for c in columns)], [[name, *(mean_cell(c, m) for c in columns)] for name, m in rows])


def mean_cell(column: Column, seeds: Sequence[Mapping[str, Any]]) -> str:
    """Write the mean over seeds and, where they differ, their deviation."""
    values = [column.scale * float(m[column.key]) for m in seeds if column.key in m]
    if not values:
        return "–"
    integral = column.key == "clusters" and all(v == int(v) for v in values) and len(set(values)) == 1
    digits = 0 if integral else column.digits_of(statistics.mean(values))
    text = f"{statistics.mean(values):z,.{digits}f}"
    if len(set(values)) > 1 and all(map(math.isfinite, values)):  # clusters that coincide have an infinite WADB
        text += f" ± {statistics.stdev(values):,.{digits}f}"
    return text if len(values) == len(seeds) else f"{text} ({len(values)}/{len(seeds)})"


def show(table: Table) -> None:
    """Print a table on stdout.

    A pipe gets all columns side by side; on a terminal that is too narrow for that they go below each other.
    """
    from rich.console import Console

    console = Console()
    if not sys.stdout.isatty():  # whatever rich makes of it
        console.width = max(console.width, sum(max(map(len, column)) + 2 for column in zip(table.head, *table.rows, strict=True)))
    for i, part in enumerate(parts(table, console.width)):
        console.print(*([""] if i else []), _rich(table, part), sep="\n")


def _rich(table: Table, part: Sequence[int]) -> Any:
    from rich.table import Table as Rich
    from rich.text import Text

    rich = Rich(box=None, pad_edge=False, header_style="bold")
    for i in part:
        numbers = i > 0 and is_numeric(row[i] for row in table.rows)
        rich.add_column(table.head[i], justify="right" if numbers else "left", no_wrap=numbers or i == 0)
    for r, row in enumerate(table.rows):
        rich.add_row(*(Text(row[i], "bold" if (r, i) in table.bold else "") for i in part))
    return rich


def is_numeric(cells: Iterable[str]) -> bool:
    """Tell whether a column holds numbers.

    Perhaps with a unit or a deviation; a dash stands for a number that is not known.
    """
    return all(NUMBER.fullmatch(cell) for cell in cells)


def parts(table: Table, width: int) -> list[list[int]]:
    """Choose the columns to show side by side.

    All, if they fit; else the first one with as many others as do, and costs apart.
    """
    if _width(table, range(len(table.head))) <= width:
        return [list(range(len(table.head)))]
    found = [[0]]
    for i in range(1, len(table.head)):
        if len(found[-1]) > 1 and (table.head[i] == COSTS or _width(table, [*found[-1], i]) > width):
            found.append([0])
        found[-1].append(i)
    return found


def _width(table: Table, part: Iterable[int]) -> int:
    return sum(_column_width(table, i) + 2 for i in part) - 2


def _column_width(table: Table, i: int) -> int:
    """Return a column's width; words can go on in the next line."""
    cells = [row[i] for row in table.rows]
    longest = max(map(len, [table.head[i], *cells]))
    return longest if i == 0 or is_numeric(cells) else min(longest, PROSE)


def markdown(table: Table) -> str:
    """Write a table in Markdown."""
    rows = [[f"**{cell}**" if (r, c) in table.bold else cell for c, cell in enumerate(row)] for r, row in enumerate(table.rows)]
    lines = ["| " + " | ".join(table.head) + " |", "|" + "|".join(["---"] + ["---:"] * (len(table.head) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def latex(table: Table) -> str:
    """Write a table in LaTeX, for the package booktabs."""
    columns = range(len(table.head))
    aligned = "".join("r" if c and is_numeric(row[c] for row in table.rows) else "l" for c in columns)
    rows = [
        [rf"\textbf{{{_escaped(cell)}}}" if (r, c) in table.bold else _escaped(cell) for c, cell in enumerate(row)]
        for r, row in enumerate(table.rows)
    ]
    body = [" & ".join(map(_escaped, table.head)) + r" \\", r"\midrule", *(" & ".join(row) + r" \\" for row in rows)]
    return "\n".join([rf"\begin{{tabular}}{{{aligned}}}", r"\toprule", *body, r"\bottomrule", r"\end{tabular}", ""])


LATEX = str.maketrans(
    {c: rf"\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "–": "--", "<": "$<$", ">": "$>$", "−": "$-$"}
)


def _escaped(text: str) -> str:
    # A bracket that follows the end of a row would be read as the row's distance to the next.
    return f"{{{text.translate(LATEX)}}}" if text.startswith("[") else text.translate(LATEX)
