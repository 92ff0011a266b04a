"""docs/results.md: the paper's tables and figures beside the kept results.

A function of these files and the package.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedgwc.reproduce.effort import effort_table
from fedgwc.reproduce.lines import Line, changes, lines_of
from fedgwc.reproduce.outcome import Outcome, read_all
from fedgwc.reproduce.paper import METRICS, OURS, Entry, Row, paper
from fedgwc.reproduce.plan import settings_today
from fedgwc.reproduce.render import compared, markdown, minus, tables
from fedgwc.reproduce.verdict import SEEDS, Kind
from fedgwc.runs.tables import Table

KINDS: tuple[Kind, ...] = ("reproduced", "not reproduced", "partial", "not run")

GUIDE = f"""# Results beside the paper's

`fedgwc results page` makes this page from the files in `results/`, and a test holds it to them. Nothing is written by hand.

Values are means over seeds with their 95 % t intervals in square brackets, and the difference from the paper's value in round
ones. A number that several of the paper's tables print stands in the first of them, and counts once. The verdicts:

- **reproduced**: the paper's rounds, every setting that it states, at least {SEEDS} seeds, and a difference of at most one point
  (0.01 for scores) or half of the last digit that the paper prints. Numbers of clusters and splits may differ by 0.5 in the mean.
- **not reproduced**: the same effort, and the 95 % interval of a larger difference leaves zero out; or a score that is not
  defined.
- **partial**: other rounds, fewer seeds, settings other than the published ones (which are named), or too few seeds to tell. It
  is no verdict yet.
- **our own rule**: `auto`, which is not the paper's method. Its values stand here for comparison only. The paper's text is
  `fedgwc`, its authors' code `fedgwc-release`.
- **no number**: a full run for a figure of which the paper prints no number.
- **not run**: nothing is known. Such values are listed below their table, with what they need.

The paper names balanced accuracy for all but the large-scale data sets. Its authors' code weights recalls by a client's training
classes instead (*weighted*). The two differ widely for clustered methods. The verdict goes by the one that the paper names
(column *by*), and the last column by the weighted one.

What the paper states of its settings is in `reproduce/published.toml`. The rest is our choice, marked "ours" in the recipes: the
number of seeds, augmentation, the momentum of FedAvgM, the mu of FedProx, the thresholds of CFL, the strength of noise and blur.

To add to it: `fedgwc reproduce NAME` makes the runs, `fedgwc results keep RUN...` their small files, and
`fedgwc results page --figures` this page.
"""


def page(results: Path, figures: Path | None = None) -> str:
    """Write the page as Markdown.

    Pictures in `figures`, the folder `figures/` beside it, are shown with their figures.
    """
    outcomes = read_all(results)
    found = {name: lines_of(entry, outcomes, needs) for name, entry in paper().items()}
    left, repeats = first_shown(found)
    entries = (_entry(name, paper()[name], left[name], repeats[name], figures) for name in found)
    parts = [GUIDE, _summary(found), *entries]
    lines = [line for some in found.values() for line in some if line.runs]
    return "\n".join([*parts, _efforts(results, outcomes), _runs(results, outcomes), _settings(lines)])


def needs(row: Row) -> str:
    job = settings_today(row.recipe, row.algorithm, row.set)
    runs = f"{SEEDS} runs" if row.values else "a run"
    return f"needs {runs} of {job['rounds']:,} rounds on {job['data']['name']}"


Number = tuple[Any, ...]


def number_of(row: Row, metric: str) -> Number:
    """Identify a printed number: tables that print it again mean the same one."""
    return row.recipe, row.algorithm, row.set, metric, row.values[metric].mean


def numbers(found: dict[str, list[Line]]) -> dict[Number, tuple[Line, list[str]]]:
    """List each printed number once, with its line and its tables.

    That is the first line that was run, the paper's text before its release; a rule of our own never stands for the paper's.
    """
    listed: dict[Number, tuple[Line, list[str]]] = {}
    for name, lines in found.items():
        for line in (line for line in lines if line.algorithm != OURS):
            for metric in line.row.values:
                before, where = listed.get(number_of(line.row, metric), (line, []))
                best = before if before.runs or not line.runs else line
                listed[number_of(line.row, metric)] = best, [*where, *([] if name in where else [name])]
    return listed


def _summary(found: dict[str, list[Line]]) -> str:
    listed = numbers(found)
    counts = Counter(line.verdict(number[3]).kind for number, (line, _) in listed.items())
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS)
    rows = []
    for number, (line, names) in listed.items():
        if line.runs:
            paper_value = line.row.values[number[3]]
            cells = [METRICS[number[3]].title, minus(paper_value.text), compared(line, number[3], paper_value)]
            where = ", ".join(f"[{name}](#{name})" for name in names)
            rows.append([line.row.recipe, line.method, *cells, str(line.verdict(number[3])), where])
    table = Table(["data", "method", "score", "paper", "ours", "verdict", "where"], rows)
    return f"## Summary\n\nOf the {len(listed)} numbers that the paper prints: {kinds}.\n\n{markdown(table)}"


def first_shown(found: dict[str, list[Line]]) -> tuple[dict[str, list[Line]], dict[str, list[str]]]:
    """Leave every number to the first table that prints it.

    Returns the tables' lines, and what each of them repeats.
    """
    owner: dict[Number, str] = {}
    left: dict[str, list[Line]] = {}
    repeats: dict[str, list[str]] = {}
    for name, lines in found.items():
        left[name], repeats[name] = [], []
        for line in lines:
            again = [m for m in line.row.values if owner.setdefault(number_of(line.row, m), name) != name]
            rest = replace(line, row=replace(line.row, **dict.fromkeys(again)))  # type: ignore[arg-type]
            if not again or rest.row.values:
                left[name].append(rest)
            if again:
                first = owner[number_of(line.row, again[0])]
                scores = ", ".join(METRICS[m].title for m in again)
                repeats[name].append(f"{line.row.recipe} {line.method} {scores} ([{first}](#{first}))")
    return left, repeats


def pictures_of(name: str, figures: Path) -> list[Path]:
    """Find the files of one figure.

    "fig-hom" is not "fig-hom-het".
    """
    files = sorted(figures.glob(f"{name}-*.png"))
    return [f for f in files if max((n for n in paper() if f.name.startswith(f"{n}-")), key=len) == name]


def _entry(name: str, entry: Entry, lines: Sequence[Line], repeats: Sequence[str], figures: Path | None) -> str:
    head = f"## {name}\n\n{entry.about}. {entry.where} of the paper. `fedgwc reproduce {name}`\n"
    drawn = pictures_of(name, figures) if figures is not None else []
    shown = [f"![{name}: {path.stem.removeprefix(f'{name}-')}](figures/{path.name})\n" for path in drawn]
    again = [f"Shown above: {'; '.join(repeats)}.\n"] if repeats else []
    return "\n".join([head, *map(markdown, tables([line for line in lines if line.runs])), *again, *_missing(lines), *shown])


def _missing(lines: Sequence[Line]) -> list[str]:
    """List the paper's values without a run."""
    by_text: dict[str, list[str]] = {}
    for line in (line for line in lines if not line.runs):
        values = ", ".join(f"{METRICS[m].title} {minus(value.text)}" for m, value in line.row.values.items())
        by_text.setdefault(f"{line.row.recipe} ({line.needs})", []).append(f"{line.method} {values}".rstrip())
    listed = (f"- {what}: {'; '.join(some)}" for what, some in by_text.items())
    return ["\n".join(["Not run:\n", *listed, ""])] if by_text else []


def _efforts(results: Path, outcomes: Sequence[Outcome]) -> str:
    lead = (
        "Rounds are not equal work. This is what runs of one recipe had reached when they had trained as many clients as the\n"
        "cheapest, from the lowest to the highest of their seeds. The paper has no row for `alone`, every client by itself."
    )
    table = effort_table(results, outcomes)
    return f"## Equal effort\n\n{lead}\n\n{markdown(folded(table, table.head[1]))}" if table.rows else ""


def _runs(results: Path, outcomes: Sequence[Outcome]) -> str:
    rows = []
    for o in outcomes:
        p = o.provenance
        command = re.sub(r"seed=\d+", "seed=SEED", str(p.get("command", "unknown")))
        cells = [str(p.get(key, "unknown")) for key in ("commit", "date", "hardware", "seconds")]
        versions = ", ".join(f"{k} {v}" for k, v in (p.get("versions") or {}).items() if k != "machine")
        rows.append([o.path.relative_to(results).as_posix(), f"`{command}`", *cells, versions])
    table = Table(["folder in results/", "command", "commit", "date", "hardware", "seconds", "versions"], rows)
    lead = (
        "Each folder also holds the full settings (`config.json`) and the course of the run (`metrics.jsonl`). Folders and\n"
        "commands keep their names of 0.1.0, where `fedgwc` was what `auto` is today, and `fedgwc-paper` what `fedgwc` is.\n"
    )
    table, common = without_common(folded(table, table.head[0], ranges=("seconds",)))
    return "\n".join([f"## Runs\n\n{lead}{common}".rstrip(), "", markdown(table)])


def folded(table: Table, folder: str, ranges: Sequence[str] | None = None) -> Table:
    """Fold rows whose `folder` differs only in the seed into one.

    A cell then has the lowest and the highest value. `ranges` names the columns that may differ so; None: all.
    """
    at = table.head.index(folder)
    may = [i != at and (ranges is None or name in ranges) for i, name in enumerate(table.head)]
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for row in table.rows:
        seeded = re.fullmatch(r"(.*-seed)(\d+)", row[at])
        name, seed = seeded.groups() if seeded else (row[at], "")
        same = (name, *(cell for i, cell in enumerate(row) if i != at and not may[i]))
        groups.setdefault(same, []).append([*row[:at], seed, *row[at + 1 :]])
    rows = []
    for (name, *_), some in groups.items():
        cells = [between(list(column)) if may[i] else column[0] for i, column in enumerate(zip(*some, strict=True))]
        cells[at] = name + ",".join(row[at] for row in some)
        rows.append(cells)
    return Table(table.head, rows)


def between(texts: Sequence[str]) -> str:
    """Show the range of some numbers; of words, all."""
    some = list(dict.fromkeys(texts))
    try:
        some.sort(key=lambda text: float(text.replace(",", "")))
    except ValueError:
        return ", ".join(some)
    return some[0] if len(some) == 1 else f"{some[0]} to {some[-1]}"


def without_common(table: Table) -> tuple[Table, str]:
    """Move columns with a single value into a sentence."""
    same = [len({row[i] for row in table.rows}) == 1 and len(table.rows) > 1 for i in range(len(table.head))]
    shared = [f"{name}: {table.rows[0][i]}" for i, name in enumerate(table.head) if same[i]]
    kept = [[cell for cell, drop in zip(row, same, strict=True) if not drop] for row in [table.head, *table.rows]]
    return Table(kept[0], kept[1:]), f"All have {'; '.join(shared)}." if shared else ""


def _settings(lines: Iterable[Line]) -> str:
    """List the settings of runs that differ from today's."""
    by_text: dict[str, list[str]] = {}
    for line in lines:
        for change in changes(line):
            who = f"{line.row.recipe} {line.method}"
            by_text[change] = [*(names := by_text.get(change, [])), *([] if who in names else [who])]
    listed = (f"- `{change}`: {', '.join(who)}" for change, who in by_text.items())
    return "\n".join(["Settings of these runs that are others today:\n", *listed, ""]) if by_text else ""
