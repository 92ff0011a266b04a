"""The results of a comparison: what was chosen, and a panel of methods for each condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedgwc.core.errors import InputError
from fedgwc.metrics.ranks import FEWEST_METHODS, FEWEST_SETS, average_ranks, critical_difference, friedman
from fedgwc.runs.comparison import Run, finds_clusters
from fedgwc.runs.contrasts import Panel, contrast
from fedgwc.runs.outcomes import Candidate, Outcome
from fedgwc.runs.scoring import CURE, Choice, Scoring, choose
from fedgwc.runs.sweep import Setting, choice_of, condition_of, setting_text
from fedgwc.runs.tables import Table


@dataclass(frozen=True)
class Results:
    """A comparison's results."""

    panels: Mapping[Setting, Panel]  # by condition; one, under (), if nothing of data, model or rounds was swept
    choices: Mapping[Setting, tuple[Choice, ...]]  # by condition, one of each algorithm
    finds: dict[str, str]  # of each algorithm, whether it finds the number of clusters
    scoring: Scoring

    @property
    def chose(self) -> bool:
        """Tell whether any method has several settings."""
        return any(len(choice.tried) > 1 for choices in self.choices.values() for choice in choices)

    @property
    def refused(self) -> list[str]:
        """List the algorithms of which nothing could be chosen."""
        several = (choice for choices in self.choices.values() for choice in choices if len(choice.reported) > 1)
        return list(dict.fromkeys(choice.tried[0].algorithm for choice in several))


def results(runs: Sequence[Run], outcomes: Mapping[str, Outcome], reference: str, scoring: Scoring) -> Results:
    """Choose settings on validation data, and compare with the reference.

    `outcomes` are by the runs' names; a run that failed has none.
    """
    cells: dict[Setting, dict[str, dict[Setting, dict[int, Outcome]]]] = {}
    for run in runs:
        condition, choice = condition_of(run.setting), choice_of(run.setting)
        by_seed = cells.setdefault(condition, {}).setdefault(run.algorithm, {}).setdefault(choice, {})
        if run.name in outcomes:
            by_seed[run.seed] = outcomes[run.name]
    finds = {run.algorithm: finds_clusters(run.job.algorithm) for run in runs}
    choices = {condition: _choices(by_algorithm, scoring) for condition, by_algorithm in cells.items()}
    reported = {condition: [c for choice in of for c in choice.reported] for condition, of in choices.items()}
    panels = {condition: contrast(of, reference, scoring) for condition, of in reported.items() if of}
    return Results(panels, choices, finds, scoring)


def _choices(by_algorithm: Mapping[str, Mapping[Setting, dict[int, Outcome]]], scoring: Scoring) -> tuple[Choice, ...]:
    every = ([Candidate(name, choice, of) for choice, of in settings.items()] for name, settings in by_algorithm.items())
    return tuple(choose(tried, scoring) for tried in every)


def tried_table(found: Results) -> Table:
    """Tabulate all settings that were tried, with what decided."""
    rows = []
    for condition, choices in found.choices.items():
        for choice in choices:
            for c in choice.tried:
                scores = [x for o in c.outcomes.values() if (x := found.scoring.score(o)) is not None]
                validation = choice.validation.get(c.title)
                reported = "yes" if c in choice.reported else "no"
                numbers = [_per_cent(validation), _per_cent(float(np.mean(scores)) if scores else None)]
                rows.append([c.title, setting_text(condition) or "–", str(len(c.outcomes)), *numbers, reported])
    metric = found.scoring.metric.replace("_", " ")
    validation = f"validation {found.scoring.validated.replace('_', ' ')} %"
    return Table(["method", "condition", "seeds", validation, f"test {metric} %", "reported"], rows)


def _per_cent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def choice_notes(found: Results) -> list[str]:
    """Say how settings were chosen, or why none was."""
    if not found.chose:
        return []
    chosen = "Of each method the setting with the highest mean validation score over seeds is reported; test data chose nothing."
    if not found.refused:
        return [chosen]
    names = ", ".join(found.refused)
    return [f"Of {names} all settings are shown: without validation data none can be chosen ({CURE})."]


@dataclass(frozen=True)
class Ranks:
    """Methods' average ranks over several conditions."""

    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    conditions: int
    critical_difference: float
    p: float  # Friedman's


def ranks_of(panels: Sequence[Panel]) -> Ranks | None:
    """Rank methods by their mean scores in several panels.

    None where fewer than three methods are in all of at least two.
    """
    scores = [_by_algorithm(panel) for panel in panels]
    methods = [name for name in (scores[0] if scores else ()) if all(name in other for other in scores)]
    if len(methods) < FEWEST_METHODS or len(panels) < FEWEST_SETS:
        return None
    table = np.array([[of[name] for name in methods] for of in scores])
    if np.isnan(table).any():
        return None
    ranks = average_ranks(table)
    spread = critical_difference(len(methods), len(panels))
    order = np.argsort(ranks, kind="stable")
    return Ranks(tuple(methods[i] for i in order), tuple(ranks[order].tolist()), len(panels), spread, friedman(table))


def _by_algorithm(panel: Panel) -> dict[str, float]:
    """Return mean scores of the algorithms with one setting."""
    names = [line.candidate.algorithm for line in panel.lines]
    return {name: line.mean for name, line in zip(names, panel.lines, strict=True) if names.count(name) == 1}


def ranks_table(ranks: Ranks) -> Table:
    """Tabulate average ranks, the best first."""
    return Table(["method", "average rank"], [[m, f"{r:.2f}"] for m, r in zip(ranks.methods, ranks.ranks, strict=True)])


def ranks_note(ranks: Ranks) -> str:
    """Explain average ranks."""
    return (
        f"Ranks of mean scores over {ranks.conditions} conditions, 1 is best. Methods less than {ranks.critical_difference:.2f} "
        f"apart are not shown to differ (Nemenyi, 95 %); Friedman's p of no difference at all is {ranks.p:.2g}."
    )


def checked_reference(reference: str | None, usual: str, algorithms: Sequence[str]) -> str:
    """Return the reference method; it is one of those compared."""
    if reference is None:
        return usual
    if reference not in algorithms:
        raise InputError(f"--reference must be one of the methods compared, {', '.join(algorithms)}; got {reference!r}")
    return reference
