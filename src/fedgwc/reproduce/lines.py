"""Lines of our tables: the paper's rows with the runs that belong to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fedgwc.core.assignments import flatten
from fedgwc.core.settings import plain
from fedgwc.core.work import LocalTraining
from fedgwc.reproduce.outcome import Outcome
from fedgwc.reproduce.paper import METRICS, OURS, POINTS, Entry, Row, varied
from fedgwc.reproduce.plan import is_idle, own_settings, settings_today, short_setting
from fedgwc.reproduce.published import differences, published
from fedgwc.reproduce.verdict import SEEDS, Effort, Verdict, picture_verdict, verdict

SETTINGS = ("data", "model", "local", "algorithm")  # what decides a result, besides seed and rounds


@dataclass(frozen=True)
class Line:
    row: Row
    algorithm: str  # the preset
    runs: tuple[Outcome, ...] = ()  # one per seed, all with the same settings
    needs: str = ""  # where there are none: what it would take

    @property
    def method(self) -> str:
        """Name the preset with the row's settings.

        And with what the preset meant when it was run, if that was something else.
        """
        name = " ".join([self.algorithm, *(short_setting(s) for s in self.row.set if not is_idle(s, self.algorithm))])
        moved = [c.split(" (today ")[0] for c in changes(self) if c.startswith("algorithm.")]
        differences = ", ".join(c.removeprefix("algorithm.").replace('"', "") for c in moved if not c.endswith("=not set"))
        return f"{name} ({differences})" if differences and not self.effort.made else name

    @property
    def settings_today(self) -> dict[str, Any]:
        return settings_today(self.row.recipe, self.algorithm, self.row.set)

    @property
    def effort(self) -> Effort:
        rounds = min((int(r.last["round"]) for r in self.runs), default=0)
        full = int(published(self.row.recipe, self.algorithm)["rounds"])
        return Effort(len(self.runs), rounds, full, any(r.made for r in self.runs), tuple(self.differences))

    @property
    def differences(self) -> list[str]:
        """List the settings in which the runs differ from what the paper states."""
        return differences(self.runs[0].experiment, self.row, self.algorithm) if self.runs else []

    def ours(self, metric: str) -> list[float | None]:
        """Return one value per seed, in the paper's units."""
        found = [r.last.get(metric) for r in self.runs]
        return [None if v is None else float(v) * METRICS[metric].scale for v in found]

    def verdict(self, metric: str | None = None, by: str | None = None) -> Verdict:
        """Judge the paper's `metric`, measured `by` that or another.

        Without a metric, judge a figure.
        """
        if not self.runs:
            return Verdict("not run", self.needs)
        if self.algorithm == OURS:
            return Verdict("our own rule", self.effort.shortfall(seeds=1 if metric is None else SEEDS))
        if metric is None:
            return picture_verdict(self.effort)
        by = by or metric
        return verdict(self.row.values[metric], self.ours(by), self.effort, POINTS.get(by, 0.0))


def lines_of(entry: Entry, outcomes: Iterable[Outcome], needs: Callable[[Row], str]) -> list[Line]:
    """Sort runs into lines, at least one per row.

    Runs whose settings differ in more than the seed make lines of their own.
    """
    outcomes = list(outcomes)
    found = []
    for row in entry.rows:
        lines = list(_lines(row, outcomes))
        found += lines or [Line(row, row.presets[0], needs=needs(row))]
    return found


def _lines(row: Row, outcomes: list[Outcome]) -> Iterator[Line]:
    for preset in row.presets:
        alike: dict[str, dict[int, Outcome]] = {}
        for outcome in outcomes:
            if belongs(outcome, row, preset):
                alike.setdefault(_identity(outcome), {}).setdefault(outcome.seed, outcome)
        lines = [Line(row, preset, tuple(runs[seed] for seed in sorted(runs))) for runs in alike.values()]
        yield from sorted(lines, key=lambda line: len(changes(line)))  # today's settings first


def belongs(outcome: Outcome, row: Row, preset: str) -> bool:
    """Tell whether a run belongs to a row.

    The recipe, the preset and everything that the paper's tables vary are the row's. Other differences are shown beside it.
    """
    if (outcome.recipe, outcome.algorithm) != (row.recipe, preset):
        return False
    now = settings_today(row.recipe, preset, row.set)
    if any(is_idle(setting, preset) for setting in own_settings(row, row.algorithm)):
        return False  # the row is about something that this preset has not
    return all(_at(outcome.experiment, key) == _at(now, key) for key in varied())


def _at(table: Any, key: str) -> Any:
    for part in key.split("."):
        if isinstance(table, list):
            table = table[int(part)] if int(part) < len(table) else None
        else:
            table = table.get(part) if isinstance(table, dict) else None
    return table


def _identity(outcome: Outcome) -> str:
    return json.dumps([outcome.experiment["rounds"], _result_settings(outcome.experiment)], sort_keys=True)


def _result_settings(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that decide a result, by their full names.

    Where the data lie does not.
    """
    # What came after a run was made has the value under which clients train as they did.
    later = {"data.validation": 0.0, "data.newcomers": 0.0, **flatten({"local": plain(LocalTraining())})}
    flat = later | flatten({name: tables[name] for name in SETTINGS})
    return {key: value for key, value in flat.items() if key != "data.root"}


def changes(line: Line) -> list[str]:
    """List settings that differ from today's: `algorithm.visits=10 (today 40)`."""
    if not line.runs:
        return []
    then, now = _result_settings(line.runs[0].experiment), _result_settings(line.settings_today)
    keys = [key for key in {**then, **now} if then.get(key) != now.get(key)]
    return [f"{key}={_value_text(then, key)} (today {_value_text(now, key)})" for key in keys]


def _value_text(flat: dict[str, Any], key: str) -> str:
    return json.dumps(flat[key]) if key in flat else "not set"
