"""The sections on differences between methods: tables, gains of single clients, ranks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fedgwc.algorithms import ALGORITHMS
from fedgwc.comparison.contrasts import ALONE, Panel, contrast, usual_reference
from fedgwc.comparison.gains import gains_by_seed
from fedgwc.comparison.outcomes import Candidate, Outcome
from fedgwc.comparison.plan import finds_clusters
from fedgwc.comparison.ranking import Ranks, ranks_note, ranks_of
from fedgwc.comparison.scoring import Scoring
from fedgwc.comparison.tables import notes, tables_of
from fedgwc.core.assignments import flatten
from fedgwc.report.content import Cell, Section, Table
from fedgwc.report.data import Run
from fedgwc.report.figures import gains as gains_figure
from fedgwc.report.figures import ranks as ranks_figure
from fedgwc.report.figures.compare import method_colours, short_names
from fedgwc.report.methods import Method, methods_of
from fedgwc.report.render import Picture
from fedgwc.runs.tables import Table as Text

MOST_GAINS = 8  # methods whose clients' gains are drawn


@dataclass(frozen=True)
class Condition:
    """Methods on the same federations and the same model."""

    name: str  # what sets it apart from the others; empty if it is the only one
    methods: tuple[Method, ...]

    @property
    def algorithms(self) -> list[str]:
        return list(dict.fromkeys(m.runs[0].algorithm for m in self.methods))


def conditions_of(runs: Sequence[Run]) -> list[Condition]:
    """Sort runs by data and model, and by rounds where the rest is the same.

    What differs in these is no difference between methods.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(_federation(run, _same_but_rounds(runs)), sort_keys=True), []).append(run)
    keys = [json.loads(key) for key in groups]
    varied = [k for k in dict.fromkeys(k for key in keys for k in key) if len({json.dumps(key.get(k)) for key in keys}) > 1]
    names = [" ".join(f"{k.split('.')[-1]}={key[k]}" for k in varied if k in key) for key in keys]
    recipes = [str(group[0].experiment.get("recipe", "")) for group in groups.values()]
    if len(set(recipes)) == len(recipes):  # shorter than all settings in which recipes differ
        names = recipes if len(recipes) > 1 else [""]
    return [Condition(name, tuple(methods_of(group))) for name, group in zip(names, groups.values(), strict=True)]


def _federation(run: Run, by_rounds: bool) -> dict[str, object]:
    tables = {name: run.experiment.get(name, {}) for name in ("data", "model")}
    flat = {key: value for key, value in flatten(tables).items() if key != "data.root"}
    return flat | ({"rounds": run.experiment.get("rounds")} if by_rounds else {})


def _same_but_rounds(runs: Sequence[Run]) -> bool:
    """Tell whether two runs differ in nothing but their rounds."""
    return any(len({r.experiment.get("seed") for r in m.runs}) < len(m.runs) for m in methods_of(list(runs)))


def panel_of(condition: Condition) -> Panel:
    """Compare a condition's methods, as `fedgwc compare` does, at the end of their runs."""
    candidates = [Candidate(m.runs[0].algorithm, (), _outcomes(m), m.name) for m in condition.methods]
    return contrast(candidates, usual_reference(condition.algorithms), Scoring())


def _outcomes(method: Method) -> dict[int, Outcome]:
    return {int(r.experiment.get("seed", 0)): Outcome(r.metrics, r.per_client or {}) for r in method.runs}


def differences_section(conditions: Sequence[Condition], panels: Sequence[Panel]) -> Section:
    """Make the section of tables, three for each condition."""
    finds = {name: finds_clusters(ALGORITHMS[name]) for c in conditions for name in c.algorithms if name in ALGORITHMS}
    tables = [
        _sortable(each.table, f"{condition.name}: {each.title}" if condition.name else each.title)
        for condition, panel in zip(conditions, panels, strict=True)
        for each in tables_of(panel, finds)
    ]
    lead = "Is one method better than another, for whom, and at what cost? Click a heading to sort."
    said = dict.fromkeys(note for panel in panels for note in [*notes(panel), *_several_settings(panel)])
    return Section("comparison", "Comparison", lead, tables=tuple(tables), note=" ".join(said))


def _several_settings(panel: Panel) -> list[str]:
    """Warn of a choice between settings by what the page shows."""
    algorithms = [line.candidate.algorithm for line in panel.lines]
    several = [name for name in dict.fromkeys(algorithms) if algorithms.count(name) > 1]
    what = "to take the best of them by these numbers is a choice on test data (fedgwc compare --sweep chooses on validation)."
    return [f"Of {', '.join(several)} several settings are shown; {what}"] if several else []


def _sortable(table: Text, caption: str) -> Table:
    rows = [[_cell(text, (r, c) in table.bold) for c, text in enumerate(row)] for r, row in enumerate(table.rows)]
    return Table(caption, table.head, rows, sortable=True)


def _cell(text: str, strong: bool) -> Cell:
    """Make a cell that is sorted by its first number."""
    first = text.strip("[").split(" ")[0].rstrip(",").replace(",", "")
    try:
        return Cell(text, float(first), strong)
    except ValueError:
        return Cell(text, {"–": float("-inf"), "<": 0.0}.get(first), strong)


def gains_section(condition: Condition, panel: Panel, name: str) -> Section | None:
    """Draw each client's gain over training alone, a picture per method."""
    candidates = {line.title: line.candidate for line in panel.lines}
    alone = [c for c in candidates.values() if c.algorithm == ALONE]
    if len(alone) != 1:
        return None
    titles = [m.name for m in condition.methods]
    colours = dict(zip(titles, method_colours(list(condition.methods)), strict=True))
    shorter = dict(zip(titles, short_names(titles), strict=True))
    found = {title: list(gains_by_seed(c, alone[0]).values()) for title, c in candidates.items() if c is not alone[0]}
    shown = [title for title, of in found.items() if of][:MOST_GAINS]
    if not shown:
        return None
    pictures = tuple(
        Picture(
            f"{name}-{i}",
            shorter[title],
            gains_figure.describe(title, found[title]),
            gains_figure.caption(found[title]),
            gains_figure.draw(found[title], colours[title]),
        )
        for i, title in enumerate(shown)
    )
    what = "Each client's gain in test accuracy over training alone, from the largest loss to the largest gain, of all seeds."
    lead = (
        f"{what} Above zero a client gains. Around each point is the 95 % interval of this client by itself (Newcombe's, for "
        "paired samples); a large point is shown by a test as well (McNemar, Benjamini-Hochberg over clients at 5 %)."
    )
    note = "" if len(shown) == len([f for f in found.values() if f]) else f"The first {MOST_GAINS} methods are shown."
    title = "Who gains" if not condition.name else f"Who gains: {condition.name}"
    return Section(name, title, lead, pictures, note=note, layout="pairs")


def ranks_section(panels: Sequence[Panel]) -> Section | None:
    """Draw average ranks and the critical difference, over several conditions."""
    ranks = ranks_of(panels)
    if ranks is None:
        return None
    caption = f"{ranks_note(ranks)} A bar joins methods that are not shown to differ."
    picture = Picture("ranks", "Average ranks", ranks_figure.describe(ranks), caption, ranks_figure.draw(ranks))
    return Section("ranks", "Ranks", _rank_lead(ranks), (picture,), layout="wide")


def _rank_lead(ranks: Ranks) -> str:
    return f"Which method is first how often, over {ranks.conditions} recipes or settings of the data."
