"""docs/results.md: every table and figure of the paper beside the kept results. A function of these files and the package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedgwc.reproduce.effort import effort_table
from fedgwc.reproduce.lines import Line, changes, lines_of
from fedgwc.reproduce.outcome import Outcome, read_all
from fedgwc.reproduce.paper import ACCURACIES, METRICS, OURS, Entry, Row, paper
from fedgwc.reproduce.plan import today
from fedgwc.reproduce.render import compared, markdown, minus, tables
from fedgwc.reproduce.verdict import SEEDS, Kind
from fedgwc.runs.tables import Table

KINDS: tuple[Kind, ...] = ("reproduced", "not reproduced", "partial", "our own rule", "no number", "not run")

GUIDE = f"""# Results beside the paper's

Made by `fedgwc results page` from the files in `results/`; a test holds this page to them. Nothing here is written by hand.

How to read it. Values are means over seeds ± standard deviations; in brackets is the difference from the paper's value. The
verdict is:

- **reproduced**: the paper's rounds and settings (the authors' own partition or one like it), at least {SEEDS} seeds, and a
  difference of at most one point (0.01 for scores), two standard errors of the difference, or half of the last digit that the
  paper prints, whichever is largest; numbers of clusters and splits may differ by 0.5 in the mean;
- **not reproduced**: the same effort, and a larger difference, or a score that is not defined;
- **partial**: fewer (or more) rounds, fewer seeds, other settings, or seeds that differ too much to tell; whatever the
  difference, it is no verdict yet;
- **our own rule**: `auto`, this project's default, divides by another rule than the paper's FedGWC (beta, for one, has no
  effect on it). Its values stand beside the paper's for comparison. `fedgwc` is the text, `fedgwc-release` the authors'
  code;
- **no number**: a full run for a figure of which the paper prints no number;
- **not run**: and what it would take.

The paper names balanced accuracy (the mean of class-wise recalls) for all but the large-scale data sets; its authors' released
code weights recalls by the training classes of a client instead (*weighted*). These differ widely for clustered methods, so all
three accuracies are shown; the verdict goes by the one the paper names (column *by*), and the last column says what it would be
by the weighted one.

To add to it: `fedgwc reproduce NAME` (or `fedgwc compare`, `fedgwc run`) makes the runs, `fedgwc results keep RUN...` their small
files, `fedgwc results page --figures` this page. Settings that were other than the package's today are named under each table,
and a method whose own settings have changed since is marked.
"""


def page(results: Path, figures: Path | None = None) -> str:
    """The page as Markdown; pictures in `figures`, the folder `figures/` beside it, are shown with their figures."""
    outcomes = read_all(results)
    found = {name: lines_of(entry, outcomes, needs) for name, entry in paper().items()}
    parts = [GUIDE, _summary(found), *(_entry(name, paper()[name], found[name], figures) for name in found)]
    return "\n".join([*parts, _efforts(results, outcomes), _runs(results, outcomes)])


def needs(row: Row) -> str:
    job = today(row.recipe, row.algorithm, row.set)
    runs = f"{SEEDS} runs" if row.values else "a run"
    return f"needs {runs} of {job['rounds']:,} rounds on {job['data']['name']}"


def metrics_of(line: Line) -> list[str | None]:
    """What a verdict is given on; a figure's line without numbers has one verdict all the same."""
    return list(line.row.values) or [None]


def _summary(found: dict[str, list[Line]]) -> str:
    rows = []
    for name, lines in found.items():
        counts = Counter(line.verdict(metric).kind for line in lines for metric in metrics_of(line))
        rows.append([f"[{name}](#{name})", *(str(counts[kind] or "") for kind in KINDS)])
    total = [sum(int(row[i] or 0) for row in rows) for i in range(1, len(KINDS) + 1)]
    table = markdown(Table(["verdicts", *KINDS], [*rows, ["all", *map(str, total)]]))
    return "\n".join(["## Summary\n", table, _coverage(found), *_findings(found)])


def _coverage(found: dict[str, list[Line]]) -> str:
    """How many of the numbers that the paper prints have a run behind them; one that several tables share counts once."""
    tried: dict[tuple[Any, ...], bool] = {}
    for line in (line for lines in found.values() for line in lines):
        for metric in line.row.values:
            value = (line.row.recipe, line.row.algorithm, line.row.set, metric, line.row.values[metric].mean)
            tried[value] = tried.get(value, False) or bool(line.runs and line.algorithm != OURS)
    run = sum(tried.values())
    return f"Of the {len(tried)} numbers that the paper prints, {run} have a run of the paper's own method behind them.\n"


def _findings(found: dict[str, list[Line]]) -> list[str]:
    """Every value that a verdict was reached on; one that several tables share is said once. The tables have the others."""
    said: dict[str, list[str]] = {kind: [] for kind in ("reproduced", "not reproduced")}
    for line in (line for lines in found.values() for line in lines if line.runs):
        for metric in line.row.values:
            text = f"- {line.row.recipe}, {line.method}: {_finding(line, metric)}"
            kind = line.verdict(metric).kind
            if kind in said and text not in said[kind]:
                said[kind].append(text)
    return [f"{kind.capitalize()}:\n\n" + "\n".join(texts) + "\n" for kind, texts in said.items() if texts]


def _finding(line: Line, metric: str) -> str:
    paper_value = line.row.values[metric]
    shown = ACCURACIES if metric in ACCURACIES else (metric,)
    ours = "; ".join(f"{METRICS[m].title} {compared(line, m, paper_value)}" for m in shown)
    return f"{METRICS[metric].title} {minus(paper_value.text)} in the paper; ours: {ours}"


def pictures_of(name: str, figures: Path) -> list[Path]:
    """The files of one figure; "fig-hom" is not "fig-hom-het"."""
    files = sorted(figures.glob(f"{name}-*.png"))
    return [f for f in files if max((n for n in paper() if f.name.startswith(f"{n}-")), key=len) == name]


def _entry(name: str, entry: Entry, lines: Sequence[Line], figures: Path | None) -> str:
    head = f"## {name}\n\n{entry.about}. {entry.where} of the paper. `fedgwc reproduce {name}`\n"
    drawn = pictures_of(name, figures) if figures is not None else []
    shown = [f"![{name}: {path.stem.removeprefix(f'{name}-')}](figures/{path.name})\n" for path in drawn]
    return "\n".join([head, *map(markdown, tables(lines)), *shown, *_notes(lines)])


def _notes(lines: Iterable[Line]) -> list[str]:
    """Which runs a line stands on and, where the package has moved on since, with which settings they were made."""
    notes = []
    for line in (line for line in lines if line.runs):
        versions = sorted({f"fedgwc {_version(r)}, commit {r.provenance.get('commit', 'unknown')}" for r in line.runs})
        seeds = ", ".join(str(r.seed) for r in line.runs)
        text = f"- {line.row.recipe}, {line.method}: seeds {seeds}; as of {' and '.join(versions)}"
        differing = changes(line)
        notes.append(text + (f"; settings other than today's: {', '.join(f'`{c}`' for c in differing)}" if differing else ""))
    return ["\n".join([*notes, ""])] if notes else []


def _version(outcome: Outcome) -> str:
    versions: dict[str, Any] = outcome.provenance.get("versions") or outcome.config.get("versions") or {}
    return str(versions.get("fedgwc", "of unknown version"))


def _efforts(results: Path, outcomes: Sequence[Outcome]) -> str:
    lead = (
        "Rounds are not equal work. What runs of one recipe had reached when they had trained as many clients as the cheapest.\n"
        "Methods that the paper has no row for, such as `alone` (every client by itself), are found here only:"
    )
    table = effort_table(results, outcomes)
    return f"## Equal effort\n\n{lead}\n\n{markdown(table)}" if table.rows else ""


def _runs(results: Path, outcomes: Sequence[Outcome]) -> str:
    rows = []
    for o in outcomes:
        p = o.provenance
        made = [str(p.get(key, "unknown")) for key in ("commit", "date", "hardware", "seconds")]
        versions = ", ".join(f"{k} {v}" for k, v in (p.get("versions") or {}).items() if k != "machine")
        rows.append([o.path.relative_to(results).as_posix(), f"`{p.get('command', 'unknown')}`", *made, versions])
    table = Table(["folder in results/", "command", "commit", "date", "hardware", "seconds", "versions"], rows)
    lead = "Each folder also holds the full settings (`config.json`) and the course of the run (`metrics.jsonl`)."
    return f"## Runs\n\n{lead}\n\n{markdown(table)}"
