"""A comparison's tables as files: Markdown, CSV, LaTeX and, with pandas, Parquet."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgwc.comparison.contrasts import Line, Panel
from fedgwc.comparison.frames import has_frames, parquet_bytes
from fedgwc.comparison.ranking import ranks_note, ranks_of, ranks_table
from fedgwc.comparison.results import Results, choice_notes, tried_table
from fedgwc.comparison.settings import Setting, setting_text
from fedgwc.comparison.tables import notes, tables_of
from fedgwc.io.atomic import write_atomically
from fedgwc.io.csv_table import csv_bytes
from fedgwc.runs.tables import COLUMNS, latex, markdown

TRIED = "everything-tried"


def write_comparison(found: Results, folder: Path, failures: Mapping[str, str]) -> list[Path]:
    """Write all tables of a comparison into its folder."""
    records = [r for condition, panel in found.panels.items() for r in records_of(condition, panel)]
    files = {
        "comparison.md": page(found, failures).encode(),
        "comparison.csv": records_csv(records),
        "comparison.tex": tex(found).encode(),
    }
    if found.chose:
        tried = tried_table(found)
        files |= {f"{TRIED}.md": markdown(tried).encode(), f"{TRIED}.csv": csv_bytes(tried.head, tried.rows)}
    if has_frames():
        files["comparison.parquet"] = parquet_bytes(records)
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]


def page(found: Results, failures: Mapping[str, str]) -> str:
    """Write the comparison as a page of Markdown."""
    parts: list[str] = []
    for condition, panel in found.panels.items():
        parts += [f"# {setting_text(condition)}\n"] if condition else []
        for each in tables_of(panel, found.finds):
            parts += [f"## {each.title}\n", markdown(each.table)]
        parts += [*notes(panel), ""]
    if (ranks := ranks_of(list(found.panels.values()))) is not None:
        parts += ["# Ranks\n", markdown(ranks_table(ranks)), ranks_note(ranks), ""]
    parts += choice_notes(found)
    if failures:
        parts += ["# Failed\n", *(f"- {name}: {problem}" for name, problem in failures.items())]
    return "\n".join(parts).rstrip() + "\n"


def tex(found: Results) -> str:
    """Write all tables in LaTeX."""
    parts = ["% needs \\usepackage{booktabs}"]
    for condition, panel in found.panels.items():
        for each in tables_of(panel, found.finds):
            title = ", ".join(filter(None, [setting_text(condition), each.title]))
            parts += [f"% {title}", latex(each.table)]
    return "\n".join(parts)


def records_of(condition: Setting, panel: Panel) -> list[dict[str, Any]]:
    """Return a panel as records of plain numbers, one per method.

    Shares are fractions, as in metrics.jsonl.
    """
    return [{**dict(condition), **_record(panel, line)} for line in panel.lines]


def _record(panel: Panel, line: Line) -> dict[str, Any]:
    d, clients = line.difference, line.over_clients or (math.nan, math.nan)
    record: dict[str, Any] = {
        "method": line.title,
        "algorithm": line.candidate.algorithm,
        **dict(line.candidate.choice),
        "seeds": len(line.scores),
        "metric": panel.scoring.metric,
        "when": panel.scoring.when,
        "score": line.mean,
        "score_sd": _deviation(list(line.scores.values())),
        "reference": panel.reference,
        "verdict": "reference" if line.title == panel.reference else line.verdict,
        "beats_all": line.best,
    }
    numbers = (d.pairs, d.mean, d.low, d.high, d.p) if d else (0, *[math.nan] * 4)
    record |= dict(zip(("pairs", "difference", "difference_low", "difference_high", "p"), numbers, strict=True))
    record |= {"p_holm": line.p, "over_clients_low": clients[0], "over_clients_high": clients[1]}
    for (who, other), share in line.gains.items():
        record |= {f"{who}better_than_{other}": share.better, f"{who}shown_better_than_{other}": share.shown}
    return record | _columns(line)


def _columns(line: Line) -> dict[str, Any]:
    """Return the mean and deviation of every column over seeds."""
    record: dict[str, Any] = {}
    for column in COLUMNS:
        rows = list(line.rows.values()) if "accuracy" in column.key else line.last
        values = [float(row[column.key]) for row in rows if column.key in row]
        if values:
            record |= {column.key: statistics.fmean(values), f"{column.key}_sd": _deviation(values)}
    return record


def _deviation(values: Sequence[float]) -> float:
    finite = len(values) > 1 and all(map(math.isfinite, values))
    return statistics.stdev(values) if finite else math.nan


def records_csv(records: Sequence[Mapping[str, Any]]) -> bytes:
    """Write records with all their keys; what one does not have is empty."""
    head = list(dict.fromkeys(key for record in records for key in record))
    return csv_bytes(head, ([_plain(record.get(key)) for key in head] for record in records))


def _plain(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value
