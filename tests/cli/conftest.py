"""Commands in this process, and a run that they can look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedgwc.cli.app import main
from fedgwc.runs.experiment import experiment
from fedgwc.runs.loop import run


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Answer]
TABLES: dict[str, Any] = {
    "rounds": 40,
    "data": {
        "name": "digits",
        "validation": 0.0,
        "newcomers": 0.0,
        "train_size": 40,
        "test_size": 10,
        "groups": [{"clients": 20}, {"clients": 8, "relabel": 1}],
    },
    "model": {"name": "mlp", "hidden": [16]},
    "local": {"steps": 4, "batch": 20, "lr": 0.2},
    "algorithm": {"name": "fedgwc", "rate": 1.0, "eps": 0.3, "beta": 4.0},
    "evaluate": {"every": 40},
}


@pytest.fixture
def fedgwc(capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*args: str | Path) -> Answer:
        with pytest.raises(SystemExit) as end:
            main([str(a) for a in args])
        return Answer(int(end.value.code or 0), *capsys.readouterr())

    return command


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that found 20 usual and 8 shifted clients, with everybody in every round."""
    return run(experiment(TABLES, "commands"), tmp_path_factory.mktemp("runs") / "r").folder


def refused(answer: Answer, message: str) -> None:
    assert answer.code == 2
    assert message in answer.err
    assert answer.err.startswith("fedgwc: ")
    assert len(answer.err.strip().splitlines()) == 1
