"""The settings that the paper states, read from `published.toml`, and where a run differs from them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from fedgwc.core.assignments import flatten
from fedgwc.reproduce.paper import Row

OWN = {"fedprox": "local.prox", "fedavgm": "algorithm.server.momentum"}  # what makes these methods, and is not stated


@cache
def _tables() -> dict[str, dict[str, Any]]:
    text = (resources.files("fedgwc") / "reproduce" / "published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def published(recipe: str, preset: str) -> Mapping[str, Any]:
    """Return the settings that the paper states for a recipe.

    And for a preset, by their full names."""
    tables = _tables()
    stated: dict[str, Any] = {}
    name: str | None = recipe
    while name is not None:
        stated = {**flatten(tables[name]), **stated}
        name = stated.pop("like", None)
    stated = {**flatten(tables["all"]), **flatten(tables["fedgwc"] if preset == "fedgwc" else {}), **stated}
    return {key: value for key, value in stated.items() if key != OWN.get(preset)}


def differences(experiment: Mapping[str, Any], row: Row, preset: str) -> list[str]:
    """List the stated settings in which a run differs: `local.lr 0.5 instead of 0.01`.

    One that the run does not know, because it came later, is not counted, nor is one that the row itself varies.
    """
    stated = dict(published(row.recipe, preset))
    del stated["rounds"]
    groups = stated.pop("groups", None)
    flat = {key: value for key, value in flatten(experiment).items() if value is not None}
    varied = {setting.partition("=")[0] for setting in row.set}
    found = [
        f"{key} {json.dumps(flat[key])} instead of {json.dumps(want)}"
        for key, want in stated.items()
        if key in flat and key not in varied and flat[key] != want
    ]
    if groups is None or flat.get("data.partition_file") or any(key.startswith("data.groups") for key in varied):
        return found  # the authors' own partition is the paper's setting
    mine = sorted([group.get("clients"), group.get("alpha")] for group in flat["data.groups"])
    return found if mine == sorted(groups) else [*found, f"data.groups {mine} instead of {sorted(groups)}"]
