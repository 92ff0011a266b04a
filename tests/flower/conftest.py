"""Fixtures for tests of real messages. Without Flower nothing here is collected, and test_0_flower.py says why."""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fedgwc.runs.experiment import Experiment, experiment

from . import blobs

if find_spec("flwr") is None:
    collect_ignore_glob = ["test_[!0]*.py"]
else:
    from .deployed import PROXIED, make, write_recipe

    @pytest.fixture
    def folder(tmp_path: Path) -> Path:
        """Write a federation whose nodes come in through a proxy."""
        return make(write_recipe(tmp_path), tmp_path / "d", **PROXIED)

    @pytest.fixture(autouse=True)
    def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody writes error replies here, so there is nothing to wait for past a deadline."""
        monkeypatch.setattr("fedgwc.flower.mailbox.GRACE", 0.0)


@pytest.fixture
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else this machine serves, where a check looks for a server there is none."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)


@pytest.fixture
def world() -> Callable[..., Any]:
    """`world(job, min_replies=1)`: all of the job's clients on a grid, four per node."""
    from .worlds import build

    return build


@pytest.fixture
def blob_job(tmp_path: Path) -> Callable[..., Experiment]:
    """FedGWC on the twelve clients of `blobs`: `blob_job(rounds=6, min_size=3)`; one step is enough where nothing is learnt."""

    def build(rounds: int = 12, steps: int = 8, engine: dict[str, Any] | None = None, **algorithm: Any) -> Experiment:
        blobs.write(tmp_path / "blobs.npz")
        tables = blobs.tables(tmp_path / "blobs.npz", rounds, **algorithm)
        tables["local"]["steps"] = steps
        return experiment({**tables, "engine": engine or {}, "seed": 1}, "blobs")

    return build
