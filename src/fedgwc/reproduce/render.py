"""Lines as tables: for a terminal, Markdown and csv."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Sequence

from fedgwc.reproduce.lines import Line
from fedgwc.reproduce.paper import ACCURACIES, METRICS, SCORES, Value
from fedgwc.reproduce.verdict import half_width
from fedgwc.runs.tables import Table
from fedgwc.runs.tables import markdown as plain_markdown

SHORT = {"balanced_accuracy": "balanced", "accuracy": "accuracy", "weighted_accuracy": "weighted"}
COUNTS = ("clusters", "splits")
CSV_HEAD = ("table", "recipe", "method", "metric", "paper", "paper_std", "ours", "ours_std", "half_width", "difference")
CSV_END = ("seeds", "rounds", "verdict")


def tables(lines: Sequence[Line]) -> list[Table]:
    """Make the tables that the lines have values for: accuracies, scores, pictures."""
    candidates = (accuracy_table(lines), score_table(lines), picture_table(lines))
    return [table for table in candidates if table.rows]


def accuracy_table(lines: Sequence[Line]) -> Table:
    """Tabulate the paper's accuracy beside all three of ours.

    The verdict goes by the one the paper names, then by its authors' own.
    """
    head = ["data", "method", "paper %", "by", *(METRICS[m].title for m in ACCURACIES), "verdict", "verdict by weighted %"]
    rows = []
    for line in lines:
        if named := line.row.named:
            paper = line.row.values[named]
            ours = [compared(line, metric, paper) for metric in ACCURACIES]
            verdict, weighted = line.verdict(named), line.verdict(named, by="weighted_accuracy")
            also = str(weighted) if verdict.kind in ("reproduced", "not reproduced") else ""
            rows.append([line.row.recipe, line.method, minus(paper.text), SHORT[named], *ours, str(verdict), also])
    return Table(head, rows)


def score_table(lines: Sequence[Line]) -> Table:
    rows = []
    for line in lines:
        for metric in SCORES:
            if (paper := line.row.values.get(metric)) is not None:
                ours = compared(line, metric, paper)
                cells = [METRICS[metric].title, minus(paper.text), ours, str(line.verdict(metric))]
                rows.append([line.row.recipe, line.method, *cells])
    return Table(["data", "method", "score", "paper", "ours", "verdict"], rows)


def picture_table(lines: Sequence[Line]) -> Table:
    """Tabulate runs of a figure without printed numbers."""
    rows = [[line.row.recipe, line.method, str(line.verdict())] for line in lines if not line.row.values]
    return Table(["data", "method", "verdict"], rows)


def compared(line: Line, metric: str, paper: Value) -> str:
    """Format a mean, its interval and its difference: `39.5 [39.0, 40.0] (−13.9)`.

    Our mean, its 95 % t interval over seeds, and how far it is from the paper's.
    """
    values = [v for v in line.ours(metric) if v is not None]
    if not values:
        return "–"
    digits = 0 if metric in COUNTS and all(v == int(v) for v in values) and len(set(values)) == 1 else METRICS[metric].digits
    text = mean_interval(values, digits)
    text += minus(f" ({difference(values, paper):+,.{digits}f})")
    return text if len(values) == len(line.runs) else f"{text}, {len(values)} of {len(line.runs)} runs"


def mean_interval(values: Sequence[float], digits: int) -> str:
    mean = statistics.fmean(values)
    text = minus(f"{mean:,.{digits}f}")
    if len(values) < 2 or not math.isfinite(mean):
        return text
    half = half_width(values)
    return f"{text} [{minus(f'{mean - half:,.{digits}f}')}, {minus(f'{mean + half:,.{digits}f}')}]"


def minus(text: str) -> str:
    """Replace hyphens by true minus signs."""
    return text.replace("-", "\N{MINUS SIGN}")


def markdown(table: Table) -> str:
    """Write a table as Markdown, left-aligned: most columns are words."""
    return plain_markdown(table).replace("---:", "---")


def difference(values: Sequence[float], paper: Value) -> float:
    return statistics.fmean(values) - paper.mean


def csv_text(name: str, lines: Sequence[Line]) -> str:
    """Write one line per value, with every digit.

    All three accuracies where the paper has one.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*CSV_HEAD, *CSV_END])
    for line in lines:
        for metric, paper in line.row.values.items():
            for by in ACCURACIES if metric in ACCURACIES else (metric,):
                values = [v for v in line.ours(by) if v is not None]
                mean = statistics.fmean(values) if values else ""
                std = statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else ""
                half = half_width(values) if std != "" else ""
                off = difference(values, paper) if values else ""
                cells = [name, line.row.recipe, line.method, by, paper.mean, "" if paper.std is None else paper.std]
                effort = line.effort
                writer.writerow([*cells, mean, std, half, off, effort.seeds, effort.rounds, str(line.verdict(metric, by))])
    return out.getvalue()
