"""A finished run as the tables need it: its settings and its last metrics."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedgwc.core.errors import InputError
from fedgwc.runs.folder import RunFolder

PROVENANCE = "provenance.json"
SMOKE = "-smoke"  # what `fedgwc.runs.scale` appends to a recipe's name
SUFFIXES = (SMOKE, "-short")


@dataclass(frozen=True)
class Outcome:
    path: Path
    config: dict[str, Any]
    last: dict[str, Any]  # of its evaluations
    course: list[dict[str, Any]]  # all of them
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def experiment(self) -> dict[str, Any]:
        return dict(self.config["experiment"])

    @property
    def algorithm(self) -> str:
        return str(self.experiment["algorithm"]["name"])

    @property
    def recipe(self) -> str:
        """Return the recipe's name without the scale's addition."""
        name = str(self.experiment["recipe"])
        return next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name)

    @property
    def made(self) -> bool:
        return str(self.experiment["recipe"]).endswith(SMOKE)

    @property
    def seed(self) -> int:
        return int(self.experiment["seed"])


def read(path: Path) -> Outcome:
    """Read a run folder, or a kept one."""
    folder = RunFolder(path)
    config, rows = folder.config(), folder.metrics()
    if not rows:
        raise InputError(f"{path} holds a run without a single evaluation; finish it with: fedgwc run --resume --out {path}")
    return Outcome(path, config, {**rows[-1], **_splits(path)}, rows, _json(path / PROVENANCE))


def read_all(folder: Path) -> list[Outcome]:
    """Read every run below `folder`, in the order of their paths."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; name the one that holds kept results")
    return [read(path.parent) for path in sorted(folder.glob("**/config.json"))]


def _splits(path: Path) -> dict[str, int]:
    tree = path / "splits" / "tree.json"
    return {"splits": sum(node["ended"] is not None for node in _json(tree))} if tree.is_file() else {}


def _json(path: Path) -> Any:
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}") from None
