"""Outcomes of runs, read from their folders for a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedgwc.comparison.settings import Setting, setting_text
from fedgwc.io.npz import read_npz
from fedgwc.runs.folder import RunFolder

Row = Mapping[str, Any]  # an evaluation, of metrics.jsonl


@dataclass(frozen=True)
class Outcome:
    """A run's evaluations, and how its final models serve each client."""

    rows: Sequence[Row]
    clients: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # of per_client.npz


@dataclass(frozen=True)
class Candidate:
    """A method with its settings, and its runs by seed."""

    algorithm: str
    choice: Setting
    outcomes: Mapping[int, Outcome]
    called: str = ""  # its name where it is not made of these

    @property
    def title(self) -> str:
        return self.called or " ".join([self.algorithm, setting_text(self.choice)]).rstrip()


def read_outcome(folder: Path) -> Outcome:
    """Read a finished run's evaluations and scores per client."""
    path = folder / "per_client.npz"
    return Outcome(RunFolder(folder).metrics(), read_npz(path) if path.is_file() else {})


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Find run folders among `paths`.

    A folder that is no run but holds some, as `fedgwc compare` makes, stands for these.
    """
    found: list[Path] = []
    for path in paths:
        inside = sorted(p.parent for p in path.glob("*/config.json")) if path.is_dir() else []
        found += inside if inside and not RunFolder(path).has_run() else [path]
    return found
