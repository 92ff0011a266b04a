"""Scales of a recipe: full, a tenth of its rounds, or a smoke test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedgwc.core.assignments import Assignment
from fedgwc.core.settings import convert, lookup
from fedgwc.data.groups import Group
from fedgwc.data.sources import synthetic
from fedgwc.runs.experiment import Experiment, assigned, experiment, read_recipe

# Of a smoke run. Clients have fewer images than a batch, so a step uses all of them.
ROUNDS, STEPS, BATCH, SIDE = 3, 2, 16, 64
CLIENTS, TRAIN, TEST = 12, 8, 4

Tables = dict[str, Any]


def scaled_experiment(
    recipe: str | os.PathLike[str] | None = None, sets: Iterable[Assignment] = (), scale: str = "full", root: Path | None = None
) -> Experiment:
    """Load a recipe at a scale; `sets` win over the scale's settings.

    At scale smoke the data are made ones, written below `root` (by default the data root), unless a setting says where
    data or clients come from.
    """
    sets = list(sets)
    tables = read_recipe(recipe, sets)
    data = experiment(tables).tables["data"]
    name, folder = str(data.get("name")), None
    if scale == "smoke" and name in synthetic.WRITERS and not data.keys() & {"root", "partition_file"}:
        folder = synthetic.synthetic_root(root)
        synthetic.write(name, folder)
    return experiment(assigned(scaled(tables, scale, folder), sets))


def scaled(tables: Mapping[str, Any], scale: str, made_root: Path | None = None) -> Tables:
    """Scale a recipe's tables.

    `made_root` is where generated data are, None leaves the data where they are.
    """
    job = experiment(tables)  # says what is wrong with them before anything changes
    shrink = lookup(SCALES, scale, "scale")
    return shrink({**tables}, job, made_root)


def _full(tables: Tables, job: Experiment, made_root: Path | None) -> Tables:
    return tables


def _short(tables: Tables, job: Experiment, made_root: Path | None) -> Tables:
    return {**tables, "recipe": f"{job.recipe}-short", "rounds": max(1, job.rounds // 10)}


def _smoke(tables: Tables, job: Experiment, made_root: Path | None) -> Tables:
    local = {**job.tables["local"], "batch": min(job.local.batch, BATCH)}
    if job.local.steps is not None:
        local["steps"] = min(job.local.steps, STEPS)
    return {
        **tables,
        "recipe": f"{job.recipe}-smoke",
        "rounds": min(job.rounds, ROUNDS),
        "data": _small(job.tables["data"], made_root),
        "model": {k: v for k, v in job.tables["model"].items() if k != "weights"},  # made data do not need good ones
        "local": local,
    }


def _small(data: Mapping[str, Any], made_root: Path | None) -> Tables:
    """Reduce the clients of every group and their sizes.

    As many of each kind of setting as [data] has.
    """
    small = dict(data)
    if "groups" in data:
        small["groups"] = _fewer(data["groups"])
    for key, most in (("train_size", TRAIN), ("test_size", TEST), ("size", SIDE)):
        if key in data:
            small[key] = min(convert(data[key], int, f"data.{key}"), most)
    return small if made_root is None else {**small, **synthetic.settings(str(data.get("name")), made_root)}


def _fewer(groups: Any) -> list[Tables]:
    """Share CLIENTS out among the groups by size, at least two each."""
    checked = convert(groups, tuple[Group, ...], "data.groups")
    total = sum(group.clients for group in checked)
    kept = [min(group.clients, max(2, round(CLIENTS * group.clients / total))) for group in checked]
    sizes = ("train_size", "test_size")  # of single groups: they made room that a smoke run does not need
    return [{**{k: v for k, v in g.items() if k not in sizes}, "clients": n} for g, n in zip(groups, kept, strict=True)]


SCALES: dict[str, Callable[[Tables, Experiment, Path | None], Tables]] = {"full": _full, "short": _short, "smoke": _smoke}
