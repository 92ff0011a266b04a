"""The page of several runs: methods side by side."""

from __future__ import annotations

import statistics

from fedgwc.comparison.contrasts import Panel
from fedgwc.core.assignments import flatten
from fedgwc.report.content import Cell, Headline, Page, Section, Table, number, settings_tables
from fedgwc.report.data import Run
from fedgwc.report.differences import conditions_of, differences_section, gains_section, panel_of, ranks_section
from fedgwc.report.figures import compare
from fedgwc.report.methods import Method, methods_of
from fedgwc.report.render import Picture
from fedgwc.runs.tables import COLUMNS, Column

CURVES = {"balanced_accuracy": "balanced accuracy", "accuracy": "accuracy", "weighted_accuracy": "weighted accuracy"}


def several_runs(runs: list[Run]) -> Page:
    """Build the page: differences, who gains, ranks, curves, runs and settings."""
    methods, conditions = methods_of(runs), conditions_of(runs)
    panels = [panel_of(condition) for condition in conditions]
    recipes = sorted({str(r.experiment.get("recipe", "")) for r in runs})
    several = len(conditions) > 1
    n = max(len(condition.methods) for condition in conditions)
    title = f"{f'{n} methods' if n > 1 else methods[0].name} on {', '.join(recipes)}"
    abouts = sorted({str(r.experiment.get("about") or "") for r in runs} - {""})
    sections = [differences_section(conditions, panels), ranks_section(panels)]
    sections += [gains_section(c, p, f"gains{suffix(i)}") for i, (c, p) in enumerate(zip(conditions, panels, strict=True))]
    for i, condition in enumerate(conditions):
        sections += curves(list(condition.methods), suffix(i), condition.name if several else "")
    sections += [_runs(methods), _configuration(methods)]
    return Page(title, "; ".join(abouts), headlines(methods, panels), [s for s in sections if s is not None])


def suffix(i: int) -> str:
    """Number the sections of further conditions."""
    return f"-{i + 1}" if i else ""


def headlines(methods: list[Method], panels: list[Panel]) -> list[Headline]:
    """Lead with the best means, and whether the best method is shown to be that."""
    found = [Headline("runs", str(sum(len(m.runs) for m in methods)), f"{len(methods)} methods")]
    if len(panels) > 1:
        return [*found, Headline("conditions", str(len(panels)), "each has its own tables")]
    algorithms = [m.runs[0].algorithm for m in methods]
    once = len(set(algorithms)) == len(algorithms)  # to name the best of several settings would choose it on test data
    for key, label in CURVES.items() if once else ():
        means = {m.name: statistics.mean(r.last[key] for r in m.runs) for m in methods if all(key in r.last for r in m.runs)}
        if means:
            best = max(means, key=lambda name: means[name])
            found.append(Headline(f"best {label}", f"{100 * means[best]:.1f} %", best))
    shown = [line.title for line in panels[0].lines if line.best]
    if len(panels[0].lines) > 1:
        found.append(
            Headline("shown to beat each of the others", shown[0] if shown else "none", "by paired differences over seeds")
        )
    return found


def curves(methods: list[Method], suffix: str, condition: str) -> list[Section | None]:
    """Make the sections of curves over rounds and over costs."""
    band = ", the band one standard deviation over seeds" if any(len(m.runs) > 1 for m in methods) else ""
    marks = " Triangles above a line mark rounds in which clusters split." if any(m.splits for m in methods) else ""
    caption = f"{f'Lines are means{band}' if band else 'One line per method'}; names have the last value.{marks}"
    caption += " What was lower in the first twentieth of the rounds may lie below the plot."
    shown = [key for key in CURVES if any(len(m.curve(key)[0]) for m in methods)]
    pictures = [
        Picture(
            f"compare-{key.replace('_', '-')}{suffix}",
            CURVES[key].capitalize(),
            compare.describe(methods, key),
            "" if i else caption,
            compare.draw(methods, key, f"{CURVES[key]}, %"),
        )
        for i, key in enumerate(shown)
    ]
    if shown:
        pictures += [picture for over in compare.COSTS if (picture := _over_cost(methods, shown[0], over, suffix)) is not None]
    if not pictures:
        return []
    of = f": {condition}" if condition else ""
    more = "The other accuracies, drawn alike; and the first over what it took: clients trained, and what was sent, logarithmic."
    return [
        Section(f"curves{suffix}", f"Curves{of}", "Test accuracy as training goes on.", tuple(pictures[:1]), layout="wide"),
        Section(f"more-curves{suffix}", f"More curves{of}", more, tuple(pictures[1:]), layout="pairs"),
    ]


def _over_cost(methods: list[Method], key: str, over: str, suffix: str) -> Picture | None:
    """Draw the curve over a cost, where runs counted it."""
    cost = compare.COSTS[over]
    if not any(len(m.curve(key)[0]) and len(m.curve(each)[0]) for m in methods for each in cost.keys):
        return None
    taken = {m.name: compare.cost_of(m, at, over)[-1] for m in methods if len(at := m.curve(key)[0])}
    size, unit = compare.unit_of(max(taken.values())) if over == "bytes" else (1.0, "")
    alt = f"{compare.describe(methods, key)} {cost.label.format(unit=unit).capitalize()}: "
    alt += "; ".join(f"{name} {number / size:,.3g}" for name, number in taken.items()) + "."
    figure = compare.draw(methods, key, f"{CURVES[key]}, %", over=over)
    name = "traffic" if over == "bytes" else over.replace("_", "-")
    return Picture(f"compare-{name}{suffix}", f"{CURVES[key].capitalize()} {cost.title}", alt, "", figure)


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
