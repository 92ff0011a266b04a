"""A comparison as tables of text, with notes on how to read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy import stats

from fedgwc.comparison.contrasts import ALONE, GLOBAL, Line, Panel
from fedgwc.comparison.gains import NEW, OLD
from fedgwc.comparison.scoring import WHEN_TEXT
from fedgwc.core.text import plural
from fedgwc.runs.tables import COLUMNS, Column, Table, mean_cell

CLIENTS = tuple(c for c in COLUMNS if "accuracy" in c.key)
ENDS = tuple(c for c in COLUMNS if c not in CLIENTS)
OTHERS = {ALONE: "training alone", GLOBAL: "the global model"}
WHO = {OLD: "", NEW: "newcomers: "}


@dataclass(frozen=True)
class Titled:
    """A table with its title."""

    title: str
    table: Table


def tables_of(panel: Panel, finds: dict[str, str]) -> list[Titled]:
    """Make a panel's tables: differences, clients, and clusters with costs.

    `finds` says of each algorithm whether it finds the number of clusters.
    """
    found = [Titled("Differences", differences_table(panel)), Titled("Clients", clients_table(panel))]
    return [*found, Titled("Clusters and costs, at the end of the runs", ends_table(panel, finds))]


def differences_table(panel: Panel) -> Table:
    """Tabulate each method's score and its difference to the reference."""
    column = column_of(panel)
    rows = [[line.title, mean_cell(column, list(line.rows.values()))] for line in panel.lines]
    head, bold = ["method", column.title], frozenset((r, 1) for r, line in enumerate(panel.lines) if line.best)
    if panel.reference is None or len(rows) < 2:
        return Table(head, rows, bold)
    head += [f"minus {panel.reference} [95 %]", "p, Holm", "verdict"]
    for row, line in zip(rows, panel.lines, strict=True):
        row += [difference_cell(line, column.scale), p_cell(line.p), "reference" if _is_reference(panel, line) else line.verdict]
    if any(line.over_clients for line in panel.lines):
        head.append("over clients [95 %]")
        for row, line in zip(rows, panel.lines, strict=True):
            row.append(interval_cell(line.over_clients, column.scale))
    return Table(head, rows, bold)


def column_of(panel: Panel) -> Column:
    """Return the column of the metric by which methods are compared."""
    metric = panel.scoring.metric
    return next(c for c in COLUMNS if c.key == metric)


def difference_cell(line: Line, scale: float) -> str:
    """Write a difference with its interval over seeds.

    A single pair has none.
    """
    if line.difference is None:
        return "–"
    d = line.difference
    text = f"{scale * d.mean:+z.{_digits(scale)}f}"
    return text if d.pairs < 2 else f"{text} {interval_cell((d.low, d.high), scale)}"


def interval_cell(interval: tuple[float, float] | None, scale: float) -> str:
    """Write an interval as [low, high]."""
    return "–" if interval is None else f"[{', '.join(f'{scale * x:+z.{_digits(scale)}f}' for x in interval)}]"


def p_cell(p: float) -> str:
    """Write a p value with two digits."""
    return "–" if p != p else "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def clients_table(panel: Panel) -> Table:
    """Tabulate fairness: how clients differ, and who gains."""
    rows = [(line, list(line.rows.values())) for line in panel.lines]
    columns = [c for c in CLIENTS if any(c.key in row for _, seeds in rows for row in seeds)]
    cells = [[line.title, *(mean_cell(c, seeds) for c in columns)] for line, seeds in rows]
    head = ["method", *(c.title for c in columns)]
    for who, other in [(w, o) for w in WHO for o in OTHERS if any((w, o) in line.gains for line in panel.lines)]:
        head += [f"{WHO[who]}better than {OTHERS[other]} %", f"{WHO[who]}shown better %"]
        for row, line in zip(cells, panel.lines, strict=True):
            share = line.gains.get((who, other))
            row += ["–", "–"] if share is None else [f"{100 * share.better:.1f}", f"{100 * share.shown:.1f}"]
    return Table(head, cells)


def ends_table(panel: Panel, finds: dict[str, str]) -> Table:
    """Tabulate clusters and costs at the end of the runs."""
    columns = [c for c in ENDS if any(c.key in row for line in panel.lines for row in line.last)]
    found = [finds.get(line.candidate.algorithm, "–") for line in panel.lines]
    rows = [[x.title, f, *(mean_cell(c, x.last) for c in columns)] for x, f in zip(panel.lines, found, strict=True)]
    return Table(["method", "automatic", *(c.title for c in columns)], rows)


def notes(panel: Panel) -> list[str]:
    """Explain how the tables are to be read."""
    every: Sequence[Callable[[Panel], str]] = (_when, _difference, _over_clients, _bold, _fairness, _gain)
    return [note for each in every if (note := each(panel))]


def _when(panel: Panel) -> str:
    seeds = sorted({len(line.scores) for line in panel.lines})
    text = f"Scores are on test data, {WHEN_TEXT[panel.scoring.when]}: the mean over seeds ± their standard deviation"
    return f"{text} ({' or '.join(map(str, seeds))} {'seed' if seeds == [1] else 'seeds'})."


def _difference(panel: Panel) -> str:
    if panel.reference is None:
        return "No method is compared with another: the reference has no result." if len(panel.lines) > 1 else ""
    if len(panel.lines) < 2:
        return ""
    text = f"Differences to {panel.reference} are paired by seed: the same data, the same first model."
    if panel.pairs < 2:
        return f"{text} One seed gives no interval and shows nothing; --seeds 3 or more does."
    t = float(stats.t.ppf(0.975, panel.pairs - 1))
    return (
        f"{text} In brackets the 95 % t interval over {plural(panel.pairs, 'seed')} (t = {t:.1f}). p is adjusted by Holm for the "
        f"number of methods; a verdict needs p < 0.05."
    )


def _over_clients(panel: Panel) -> str:
    if not any(line.over_clients for line in panel.lines):
        return ""
    return (
        "Over clients: a bootstrap of the difference over the clients of all seeds. It describes these clients under these "
        "models, and says nothing of other seeds."
    )


def _bold(panel: Panel) -> str:
    if len(panel.lines) < 2 or panel.pairs < 2:
        return ""
    best = [line.title for line in panel.lines if line.best]
    return f"Bold: {best[0]} is shown to beat each of the others." if best else "No method is shown to beat each of the others."


def _fairness(panel: Panel) -> str:
    if not any("accuracy_std" in row for line in panel.lines for row in line.rows.values()):
        return ""
    return "Spread is the standard deviation of accuracy over clients; a tenth of them are at or below the 10th percentile."


def _gain(panel: Panel) -> str:
    found = [share for line in panel.lines for share in line.gains.values()]
    if not found:
        return ""
    text = (
        "Better: the share of clients whose final model has more of their test samples right. Shown better: those of them for "
        "whom an exact McNemar test on these samples says so, Benjamini-Hochberg over clients at 5 %."
    )
    return text if any(s.can_be_shown for s in found) else f"{text} No client has enough test samples for that: it takes 6."


def _is_reference(panel: Panel, line: Line) -> bool:
    return line.title == panel.reference


def _digits(scale: float) -> int:
    return 1 if scale == 100 else 2
