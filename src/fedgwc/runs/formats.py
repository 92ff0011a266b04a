"""Recipes and run folders of earlier versions, translated to today's format.

Format 1 is that of 0.1.0, which wrote no number. There `fedgwc` was the package's own rule and `fedgwc-paper` the paper's text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgwc.core.errors import InputError

FORMAT = 2
OLD_NAMES = {"fedgwc": "auto", "fedgwc-paper": "fedgwc"}  # what 0.1.0 called them, and what they are called today
# What every run of a rule had in 0.1.0, and is no setting any more.
FIXED: dict[str, dict[str, Any]] = {
    "windows": {"statistics": "plain", "loss_samples": 0, "normalise": False, "cohort": "rate", "sampling": "uniform"},
    "mse": {"loss_samples": 0, "mse_average": True, "failure_resets_mse": True, "after_split": "keep"},
}
EVERYTHING_TRAINS = {"validation": 0.0, "newcomers": 0.0}  # nothing was held out but tests
# IFCA had one start, and CFL's thresholds were lengths.
UNTIL_THEN: dict[str, dict[str, Any]] = {"ifca": {"starts": 1}, "cfl": {"lengths": "absolute", "eps1": 0.4, "eps2": 1.6}}
AUTO = (
    *("rate", "server", "n_max", "min_size", "sides", "echo", "visits", "agreement", "directions", "contrast", "gain", "doubt"),
    *("drift", "second_look", "pairs_up_to"),
)
PAPER = (
    *("rate", "server", "statistics", "normalise", "start", "cohort", "sampling", "pairs_up_to", "eps", "beta", "n_max"),
    *("min_size", "mse_over", "patience", "features", "scaled", "score", "assign", "groups_by_cohort", "strict"),
)


def current(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's tables in today's format; InputError if its meaning is not certain."""
    number = tables.get("format", 1)
    if number == FORMAT:
        return _with_budget(tables)
    if number != 1:
        raise InputError(f"format {number!r} is of another version of fedgwc; this one reads formats 1 and {FORMAT}")
    _refuse_old_names(tables)
    renamed = {name: _renamed(table) if isinstance(table, Mapping) else table for name, table in tables.items()}
    data = renamed.get("data", {})
    unsplit = {**EVERYTHING_TRAINS, **data} if isinstance(data, Mapping) else data
    return _with_budget({**_with_old_defaults(renamed), "data": unsplit, "format": FORMAT})


def _with_budget(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Read `evaluate.client_updates`, as earlier versions had it, as the budget that it was."""
    evaluate = tables.get("evaluate")
    if not isinstance(evaluate, Mapping) or "client_updates" not in evaluate:
        return dict(tables)
    limit, others = evaluate["client_updates"], {k: v for k, v in evaluate.items() if k != "client_updates"}
    return {**tables, "evaluate": others if limit is None else {**others, "budget": {"updates": limit}}}


def _with_old_defaults(tables: dict[str, Any]) -> dict[str, Any]:
    """Give baselines whose defaults have changed a table with those of 0.1.0."""
    chosen = tables.get("algorithm")
    settings = dict(chosen) if isinstance(chosen, Mapping) else {}
    for name, defaults in UNTIL_THEN.items():
        own = tables.get(name, {})
        if isinstance(own, Mapping):
            given = {key: settings.pop(key) for key in defaults if key in settings and settings.get("name") == name}
            tables = {**tables, name: {**defaults, **given, **own}}
    return {**tables, "algorithm": settings} if isinstance(chosen, Mapping) else tables


def _refuse_old_names(tables: Mapping[str, Any]) -> None:
    chosen = tables.get("algorithm")
    named = chosen.get("name") if isinstance(chosen, Mapping) else None
    if named in OLD_NAMES:
        raise InputError(
            f"algorithm.name={named} has meant two things: auto, the package's own rule (fedgwc until 0.1.0), and fedgwc, the "
            f"paper's text (fedgwc-paper until 0.1.0); write the one that you mean, and format = {FORMAT} beside it"
        )
    if old := [name for name in tables if name in OLD_NAMES]:
        raise InputError(
            f"the table [{old[0]}] is of 0.1.0, where fedgwc was what auto is today, and fedgwc-paper what fedgwc is; "
            f"rename it, and write format = {FORMAT} at the top of the recipe"
        )


def _renamed(table: Mapping[str, Any]) -> dict[str, Any]:
    return {"server" if key == "aggregator" else key: value for key, value in table.items()}


def folder_tables(tables: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the experiment of a run's folder in today's format.

    And a line on names that have changed.
    """
    if tables.get("format", 1) != 1:
        return current(tables), ""
    algorithm = tables.get("algorithm")
    if not isinstance(algorithm, Mapping):
        return _with_budget({**tables, "format": FORMAT}), ""
    settings = _renamed(algorithm)
    name = str(settings.get("name"))
    settings = {**UNTIL_THEN.get(name, {}), **settings}
    if "when" in settings:
        settings = _by_losses(name, settings)
    note = f"written by fedgwc 0.1.0, which called this algorithm {name}" if settings.get("name") != name else ""
    return _with_budget({**tables, "algorithm": settings, "format": FORMAT}), note


def _by_losses(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Translate the settings of 0.1.0's FedGWC, whose rules shared one table."""
    rule = settings["when"]
    odd = [key for key, value in FIXED.get(rule, {}).items() if settings.get(key, value) != value]
    if rule not in FIXED or odd:
        what = f"{odd[0]}={settings[odd[0]]}" if odd else f"when={rule}"
        raise InputError(f"the run has {name} with {what}, which only fedgwc 0.1.0 knows; read it with that version")
    if rule == "windows":
        return {"name": OLD_NAMES.get(name, name), **{key: settings[key] for key in AUTO if key in settings}}
    alpha = {"constant": settings.get("alpha", 0.1), "cohort": 0.0}.get(settings.get("step", "1/n"))
    if alpha is None:
        raise InputError(
            f"the run has {name} with when=mse and step=1/n, which only fedgwc 0.1.0 knows; read it with that version"
        )
    return {"name": OLD_NAMES.get(name, name), "alpha": alpha, **{key: settings[key] for key in PAPER if key in settings}}
