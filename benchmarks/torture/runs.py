"""Small runs on digits of every algorithm, and whether two of them ended the same, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.protocols import state_type
from fedgwc.io.state_file import pack
from fedgwc.runs.driver import Checkpoint
from fedgwc.runs.experiment import Experiment, experiment
from fedgwc.runs.folder import RunFolder

TABLES: dict[str, Any] = {
    "rounds": 30,
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
    # Some rounds between checkpoints, so that there is something to lose.
    "evaluate": {"every": 5, "checkpoint_seconds": 0.02},
}
# So that trees are cut down too: splits within a few rounds.
EAGER: dict[str, dict[str, Any]] = {
    "auto": {"visits": 1, "min_size": 2, "contrast": 0.0, "agreement": -1.0, "gain": -1e9},
    "fedgwc": {"eps": 1e-2, "min_size": 2},
    "fedgwc-release": {"eps": 1e-2, "min_size": 2, "groups_by_cohort": False},
    "cfl": {"eps1": 10.0, "eps2": 0.01, "lengths": "absolute", "min_size": 2, "seen": 0.5},
}


def job(name: str, **changes: Any) -> Experiment:
    settings = {"name": name, "rate": 0.5, **EAGER.get(name, {})}
    tables = {**TABLES, "algorithm": settings}
    for key, value in changes.items():
        tables[key] = {**tables[key], **value} if isinstance(value, dict) else value
    return experiment(tables, "torture")


def differences(one: Path, two: Path) -> list[str]:
    """What differs between two finished runs, except how long they took and how often they were saved."""
    a, b = _content(one), _content(two)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def _content(path: Path) -> dict[str, bytes]:
    """Every result of a run by name, as bytes."""
    folder = RunFolder(path)
    rows = [{k: v for k, v in row.items() if not k.endswith("seconds") and k != "peak_memory_bytes"} for row in folder.metrics()]
    found = {"metrics.jsonl": json.dumps(rows).encode(), "state": _state(folder)}
    found |= {f"trace {name}": pack(array) for name, array in folder.trace().items()}
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        name = str(file.relative_to(path))
        if file.suffix == ".npz" and not name.startswith("trace"):
            with np.load(file) as arrays:
                found[name] = pack({key: arrays[key] for key in sorted(arrays)})
        elif name.startswith(("models", "splits", "verdicts", "labels.csv", "counts.csv", ".")):
            found[name] = file.read_bytes()
    return found


def _state(folder: RunFolder) -> bytes:
    """The algorithm's state at the end."""
    saved = experiment(folder.config()["experiment"])
    kind: Any = Checkpoint[state_type(saved.algorithm), type(None)]  # type: ignore[misc]
    found = folder.restore(kind, "cpu", print)
    assert found is not None
    return pack(found[1].state)


__all__ = ["ALGORITHMS", "differences", "job"]
