"""The page of several runs: methods side by side."""

from __future__ import annotations

import statistics

from fedgwc.core.assignments import flatten
from fedgwc.report.content import Cell, Headline, Page, Section, Table, number, settings_tables
from fedgwc.report.data import Run
from fedgwc.report.figures import compare
from fedgwc.report.methods import Method, methods_of
from fedgwc.report.render import Picture
from fedgwc.runs.tables import COLUMNS, Column, comparison_table

CURVES = {"balanced_accuracy": "balanced accuracy", "accuracy": "accuracy", "weighted_accuracy": "weighted accuracy"}


def several_runs(runs: list[Run]) -> Page:
    methods = methods_of(runs)
    recipes = sorted({str(r.experiment.get("recipe", "")) for r in runs})
    title = (
        f"{len(methods)} methods on {', '.join(recipes)}" if len(methods) > 1 else f"{methods[0].name} on {', '.join(recipes)}"
    )
    abouts = sorted({str(r.experiment.get("about") or "") for r in runs} - {""})
    sections = [_table(methods), *_curves(methods), _runs(methods), _configuration(methods)]
    return Page(title, "; ".join(abouts), headlines(methods), [s for s in sections if s is not None])


def headlines(methods: list[Method]) -> list[Headline]:
    found = [Headline("runs", str(sum(len(m.runs) for m in methods)), f"{len(methods)} methods")]
    for key, label in CURVES.items():
        means = {m.name: statistics.mean(r.last[key] for r in m.runs) for m in methods if all(key in r.last for r in m.runs)}
        if means:
            best = max(means, key=lambda name: means[name])
            found.append(Headline(f"best {label}", f"{100 * means[best]:.1f} %", best))
    return found


def _table(methods: list[Method]) -> Section:
    plain = comparison_table([(m.name, [r.last for r in m.runs]) for m in methods], detail=False)
    columns = [c for c in COLUMNS if c.title in plain.head]
    rows = [
        [Cell(row[0]), *(Cell(text, _mean(m, c)) for text, c in zip(row[1:], columns, strict=True))]
        for row, m in zip(plain.rows, methods, strict=True)
    ]
    seeds = "; mean ± standard deviation over seeds" if any(len(m.runs) > 1 for m in methods) else ""
    table = Table(f"Methods at the end of their runs{seeds}", ["method", *plain.head[1:]], rows, sortable=True)
    return Section(
        "comparison", "Comparison", "Click a heading to sort; the table of runs below has more columns.", tables=(table,)
    )


def _mean(method: Method, column: Column) -> float:
    values = [float(r.last[column.key]) for r in method.runs if column.key in r.last]
    return statistics.mean(values) if values else float("-inf")


def _curves(methods: list[Method]) -> list[Section | None]:
    band = ", the band one standard deviation over seeds" if any(len(m.runs) > 1 for m in methods) else ""
    marks = " Triangles above a line mark rounds in which clusters split." if any(m.splits for m in methods) else ""
    caption = f"{f'Lines are means{band}' if band else 'One line per method'}; names have the last value.{marks}"
    caption += " What was lower in the first twentieth of the rounds may lie below the plot."
    shown = [key for key in CURVES if any(len(m.curve(key)[0]) for m in methods)]
    pictures = [
        Picture(
            f"compare-{key.replace('_', '-')}",
            CURVES[key].capitalize(),
            compare.describe(methods, key),
            "" if i else caption,
            compare.draw(methods, key, f"{CURVES[key]}, %"),
        )
        for i, key in enumerate(shown)
    ]
    key = "balanced_accuracy"
    if any(len(m.curve(key)[0]) and len(m.curve("bytes_up")[0]) for m in methods):
        sent = {m.name: compare.traffic_of(m, at)[-1] for m in methods if len(at := m.curve(key)[0])}
        size, unit = compare.unit_of(max(sent.values()))
        alt = f"{compare.describe(methods, key)} {unit.capitalize()} sent: "
        alt += "; ".join(f"{name} {number / size:,.3g}" for name, number in sent.items()) + "."
        figure = compare.draw(methods, key, "balanced accuracy, %", traffic=True)
        pictures.append(Picture("compare-traffic", "Balanced accuracy by what was sent", alt, "", figure))
    if not pictures:
        return []
    lead = "Test accuracy as training goes on."
    return [
        Section("curves", "Curves", lead, tuple(pictures[:1]), layout="wide"),
        Section(
            "more-curves",
            "More curves",
            "The other accuracies, drawn alike; and what was sent, on a logarithmic scale.",
            tuple(pictures[1:]),
            layout="pairs",
        ),
    ]


def _runs(methods: list[Method]) -> Section:
    columns = [c for c in COLUMNS if any(c.key in r.last for m in methods for r in m.runs)]
    head = ["run", "method", "seed", "rounds", *(c.title for c in columns)]
    rows = [_row(m, r, columns) for m in methods for r in m.runs]
    return Section("runs", "Runs", "Every run by itself.", tables=(Table("All runs", head, rows, sortable=True),))


def _row(method: Method, run: Run, columns: list[Column]) -> list[Cell]:
    known = [number(run.experiment.get("seed"), 0), number(run.last["round"], 0)]
    values = [
        number(x := run.last[c.key] * c.scale if c.key in run.last else None, 0 if c.key == "clusters" else c.digits_of(x or 0))
        for c in columns
    ]
    return [Cell(run.name), Cell(method.name), *known, *values]


def _configuration(methods: list[Method]) -> Section:
    """Tabulate settings: shared ones once, others a column per method."""
    flat = [flatten(m.runs[0].experiment | {"versions": m.runs[0].config.get("versions", {})}) for m in methods]
    keys = list(dict.fromkeys(k for f in flat for k in f if k != "seed"))
    shared = {k: flat[0][k] for k in keys if all(k in f and f[k] == flat[0][k] for f in flat)}
    rows = [[Cell(k), *(Cell(str(f.get(k, "–"))) for f in flat)] for k in keys if k not in shared]
    tables = (Table("Where methods differ", ["setting", *(m.name for m in methods)], rows),) if rows else ()
    seeds = "; ".join(f"{m.name}: {', '.join(str(r.experiment.get('seed')) for r in m.runs)}" for m in methods)
    return Section("configuration", "Configuration", f"Seeds: {seeds}.", tables=tables, parts=tuple(settings_tables(shared)))
