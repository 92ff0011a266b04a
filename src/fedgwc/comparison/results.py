"""The results of a comparison: what was chosen, and a panel of methods for each condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedgwc.comparison.contrasts import Panel, contrast
from fedgwc.comparison.outcomes import Candidate, Outcome
from fedgwc.comparison.plan import Run, finds_clusters
from fedgwc.comparison.scoring import CURE, Choice, Scoring, choose
from fedgwc.comparison.settings import Setting, choice_of, condition_of, setting_text
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
                reported = "yes" if c in choice.reported else "no"
                numbers = [_per_cent(choice.validation.get(c.title)), _per_cent(float(np.mean(scores)) if scores else None)]
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
