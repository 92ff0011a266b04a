"""Small real federations that every test can afford."""

from __future__ import annotations

import os

# Tests run in parallel processes; threads inside an operator would only fight over the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from typing import Any, Protocol

import pytest
from hypothesis import settings

from fedgwc.runs.experiment import Experiment, experiment
from fedgwc.runs.progress import Silent

# The same examples for everybody, so that a test fails where something was changed. HYPOTHESIS_PROFILE=explore draws others.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

SMALL: dict[str, Any] = {
    "rounds": 8,
    "data": {
        "name": "digits",
        "validation": 0.0,
        "newcomers": 0.0,
        "train_size": 14,
        "test_size": 5,
        "groups": [{"clients": 16}, {"clients": 4, "relabel": 1}],
    },
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"steps": 2, "batch": 6, "lr": 0.1},
    "evaluate": {"every": 4},
}


class Listener(Silent):
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def message(self, text: str) -> None:
        self.heard.append(text)


class Small(Protocol):
    """An experiment on 20 clients of digits: `small("auto", local={...}, rounds=3)`."""

    def __call__(self, name: str = "fedavg", **changes: Any) -> Experiment: ...


@pytest.fixture
def small() -> Small:
    """Return the function that makes small experiments."""

    def build(name: str = "fedavg", **changes: Any) -> Experiment:
        tables = {**SMALL, "algorithm": {"name": name, "rate": 0.3}}
        for key, value in changes.items():
            tables[key] = {**tables.get(key, {}), **value} if isinstance(value, dict) else value
        return experiment(tables, "small")

    return build
