"""Federations' folders as `fedgwc deploy init` writes them, for tests."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedgwc.cli.app import main
from fedgwc.flower.deploy.check import check
from fedgwc.flower.deploy.write import Plan, init

from . import blobs
from .real import toml

PROXIED = {"host": "fed.example.org", "port": 9}  # its machine is there, and nothing runs on it yet


def write_recipe(place: Path, **tables: Any) -> str:
    """Write a recipe for the twelve clients of `blobs`."""
    blobs.write(place / "blobs.npz")
    (place / "recipe.toml").write_text(toml({**blobs.tables(place / "blobs.npz"), **tables}))
    return str(place / "recipe.toml")


def make(recipe: str, folder: Path, **plan: Any) -> Path:
    init(folder, Plan(recipe, **plan))
    return folder


def deploy(*arguments: object) -> int:
    """Return the exit code of `fedgwc deploy ...`."""
    with pytest.raises(SystemExit) as end:
        main(["deploy", *map(str, arguments)])
    return int(end.value.code or 0)


def findings(folder: Path, verdict: str = "WRONG") -> dict[str, str]:
    return {f.what: f.detail for f in check(folder) if f.verdict == verdict}


def run_config(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return found


def change(path: Path, old: str, new: str) -> None:
    """Replace a text that a file holds."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
