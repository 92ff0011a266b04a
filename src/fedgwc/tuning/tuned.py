"""The outcome of a tuning: all trials as a table, and the best settings as a piece of a recipe.

trials.csv    every trial: settings, state, validation accuracy of each seed, what it cost
trials.json   the same, and the search spaces
tuned.toml    the best settings of each method, as tables of a recipe
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgwc.core.assignments import flatten
from fedgwc.core.errors import InputError
from fedgwc.io.atomic import write_atomically
from fedgwc.io.csv_table import csv_bytes
from fedgwc.runs.budget import MEASURES
from fedgwc.runs.tables import Table
from fedgwc.tuning.search import Plan, Trial, best_trials
from fedgwc.tuning.trial import COMPLETE, PRUNED

TUNED, TRIALS = "tuned.toml", "trials"


def save_tuning(plan: Plan, trials: Sequence[Trial], folder: Path) -> None:
    """Write all trials and each method's best settings."""
    best = best_trials(trials)
    keys = list(dict.fromkeys(key for t in trials for key in t.settings))
    seeds = [f"seed {seed}" for seed in plan.seeds]
    head = ["method", "trial", "state", "best", "accuracy", *seeds, "pruned at", *MEASURES, *keys, "problem"]
    write_atomically(folder / f"{TRIALS}.csv", csv_bytes(head, (_cells(t, keys, len(seeds), best) for t in trials)))
    found = [{"method": t.method, "trial": t.number, "settings": t.settings, **vars(t.result)} for t in trials]
    chosen = {name: t.number for name, t in best.items()}
    text = json.dumps({**plan.to_json(), "best": chosen, "trials": found}, indent=1)
    write_atomically(folder / f"{TRIALS}.json", text.encode())
    write_atomically(folder / TUNED, recipe_tables(best).encode())


def _cells(trial: Trial, keys: Sequence[str], n_seeds: int, best: Mapping[str, Trial]) -> list[Any]:
    result = trial.result
    mean = f"{result.rank[0]:.4f}" if result.state == COMPLETE else ""
    seeds = [f"{a:.4f}" for a in result.accuracies] + [""] * (n_seeds - len(result.accuracies))
    costs = [f"{result.effort.get(measure, 0):.0f}" for measure in MEASURES]
    settings = [trial.settings.get(key, "") for key in keys]
    chosen = "yes" if best.get(trial.method) is trial else ""
    ended = "" if result.pruned_at is None else result.pruned_at
    return [trial.method, trial.number, result.state, chosen, mean, *seeds, ended, *costs, *settings, result.problem]


def recipe_tables(best: Mapping[str, Trial]) -> str:
    """Write the best settings as tables of a recipe."""
    lines = ["# The best settings on validation samples; every table holds for the method of its name.", "format = 2"]
    for name, trial in best.items():
        own = {key.removeprefix(f"{name}."): value for key, value in trial.settings.items()}
        lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in own.items())]
    return "\n".join([*lines, ""])


def tuned_settings(folder: Path) -> list[str]:
    """Read the best settings of a tuning as `KEY=VALUE`.

    Each concerns the method of its name only.
    """
    path = folder / TUNED
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{folder} holds no finished tuning ({TUNED}: {error.strerror}); make one: fedgwc tune --out") from None
    except ValueError as error:
        raise InputError(f"{path} is not as `fedgwc tune` wrote it: {error}") from None
    return [f"{key}={json.dumps(value)}" for key, value in flatten(tables).items() if key != "format"]


def summary(plan: Plan, trials: Sequence[Trial]) -> Table:
    """Tabulate each method's trials, and its validation accuracy before and after."""
    best, rows = best_trials(trials), []
    for name in (method.name for method in plan.methods):
        own = [t for t in trials if t.method == name]
        states = [t.result.state for t in own]
        counts = [str(len(own)), str(states.count(PRUNED)), str(len(own) - states.count(COMPLETE) - states.count(PRUNED))]
        accuracies = [_percent(t) for t in (own[0] if own else None, best.get(name))]
        updates = f"{sum(t.result.effort.get('updates', 0) for t in own):,.0f}"
        rows.append([name, *counts, *accuracies, updates, _settings(best.get(name))])
    head = ["method", "trials", "given up", "failed", "defaults %", "tuned %", "clients trained", "settings"]
    return Table(head, rows)


def _percent(trial: Trial | None) -> str:
    return "–" if trial is None or trial.result.state != COMPLETE else f"{100 * trial.result.rank[0]:.1f}"


def _settings(trial: Trial | None) -> str:
    if trial is None:
        return "none: no trial was completed"
    return setting_text(trial)


def setting_text(trial: Trial) -> str:
    """Write a trial's settings in a few words."""
    own = {key.removeprefix(f"{trial.method}."): value for key, value in trial.settings.items()}
    return ", ".join(f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}" for key, value in own.items())
