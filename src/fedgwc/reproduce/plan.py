"""Planned runs of the paper's rows; rows that mean the same run share it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.settings import setting_names
from fedgwc.reproduce.paper import Row
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.scale import scaled_experiment

# A smoke run has a dozen clients of a few images: worker processes would take longer to start than to train, and FeSEM makes
# its centres from one cohort, which has to be as large as the paper's largest k.
SMOKE = {"": ("engine.how=one-by-one", "engine.threads=1"), "fesem": ("algorithm.rate=0.5",)}


@dataclass(frozen=True)
class Planned:
    """A planned run.

    Its name is a function of what it does, so that tables find each other's runs.
    """

    name: str
    row: Row
    job: Experiment


def plan(rows: Iterable[Row], presets: Sequence[str], n_seeds: int, scale: str, sets: Sequence[str] = ()) -> list[Planned]:
    """List every run of `rows` once.

    Rows of FedGWC are run with each of `presets`.
    """
    runs: dict[str, Planned] = {}
    for row in rows:
        for algorithm in presets if row.algorithm == "fedgwc" else [row.algorithm]:
            settings = own_settings(row, algorithm)
            quick = (*SMOKE[""], *SMOKE.get(algorithm, ())) if scale == "smoke" else ()
            for seed in range(n_seeds):
                job = scaled_experiment(row.recipe, [*quick, *sets, *_assignments(algorithm, settings), f"seed={seed}"], scale)
                planned = Planned("-".join([job.recipe, algorithm, *map(short_setting, settings), f"seed{seed}"]), row, job)
                runs.setdefault(planned.name, planned)
    return list(runs.values())


@cache
def own_settings(row: Row, algorithm: str) -> tuple[str, ...]:
    """List a row's settings that differ from the recipe's."""
    plain = settings_today(row.recipe, algorithm, ())
    return tuple(s for s in row.set if settings_today(row.recipe, algorithm, (s,)) != plain)


@cache
def settings_today(recipe: str, algorithm: str, sets: tuple[str, ...]) -> dict[str, Any]:
    """Return a row's settings with today's package, as plain tables.

    Shared, so not to be changed.
    """
    job = scaled_experiment(recipe, _assignments(algorithm, sets))
    tables: dict[str, Any] = json.loads(json.dumps(job.to_json()))
    return tables


def _assignments(algorithm: str, sets: Iterable[str]) -> list[str]:
    return [f"algorithm.name={algorithm}", *(s for s in sets if not is_idle(s, algorithm))]


def is_idle(setting: str, algorithm: str) -> bool:
    """Tell whether a setting has no effect on the preset.

    The default has no beta to vary.
    """
    table, _, name = setting.partition("=")[0].partition(".")
    return table == "algorithm" and name.split(".")[0] not in setting_names(ALGORITHMS[algorithm])


def short_setting(setting: str) -> str:
    """Shorten `algorithm.aggregator.momentum=0.9` to `momentum=0.9`."""
    key, _, value = setting.partition("=")
    return f"{key.split('.')[-1]}={value}"
