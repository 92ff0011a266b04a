"""Finished runs of 20 clients, made once for all tests of reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest

from fedgwc.algorithms import ALGORITHMS
from fedgwc.report import build
from fedgwc.report.content import Page
from fedgwc.runs.experiment import experiment
from fedgwc.runs.loop import run

AT_ALL_COSTS = {"rate": 1.0, "contrast": -1.0, "agreement": -1.0, "gain": -1e9, "doubt": 0.0}  # divided after two windows
OWN: dict[str, dict[str, Any]] = {  # what divides clusters within a few rounds
    "fedgwc": {"algorithm": {"eps": 0.5}},
    "auto": {"rounds": 22, "algorithm": AT_ALL_COSTS},
}
TABLES: dict[str, Any] = {
    "rounds": 10,
    "about": "twenty clients of digits",
    "data": {
        "name": "digits",
        "validation": 0.0,
        "newcomers": 0.0,
        "train_size": 12,
        "test_size": 5,
        "groups": [{"clients": 16}, {"clients": 4, "relabel": 1}],
    },
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"steps": 3, "batch": 6, "lr": 0.1},
    "evaluate": {"every": 2},
}


class Finished(Protocol):
    """The folder of a run with these settings, made at most once: `finished("auto", seed=1)`."""

    def __call__(self, name: str, **changes: Any) -> Path: ...


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Return the function that makes runs and remembers them."""
    root = tmp_path_factory.mktemp("runs")
    made: dict[str, Path] = {}

    def folder(name: str, **changes: Any) -> Path:
        key = name + repr(sorted(changes.items()))
        if key not in made:
            tables = {**TABLES, "algorithm": {"name": name, "rate": 0.5}}
            for k, v in [*OWN.get(name, {}).items(), *changes.items()]:
                tables[k] = {**tables.get(k, {}), **v} if isinstance(v, dict) else v
            made[key] = run(experiment(tables, "small"), root / f"{name}-{len(made)}").folder
        return made[key]

    return folder


@pytest.fixture(scope="session", params=ALGORITHMS)
def any_run(request: pytest.FixtureRequest, finished: Finished) -> Path:
    return finished(request.param)


@pytest.fixture(scope="session")
def any_page(any_run: Path) -> Page:
    """Its figures take longest, and all tests look at the same."""
    return build([any_run])
