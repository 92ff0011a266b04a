"""What a run folder keeps of an algorithm, in simulation and in a real federation alike: also what only some of them offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedgwc.core.protocols import Algorithm, State
from fedgwc.core.types import Clustering, Ids
from fedgwc.engines.meter import Reported
from fedgwc.runs.folder import VERDICTS, RunFolder
from fedgwc.training.flat_model import FlatModel


def save_round(
    folder: RunFolder,
    algorithm: Algorithm[State],
    number: int,
    state: State,
    reports: Sequence[Reported],
    names: Ids | None,
) -> list[dict[str, Any]]:
    """The round's trace and events, and its verdicts, which are returned. names [M]: of the clusters that trained in it."""
    folder.observe(number, [r if names is None else replace(r, which=names[r.which]) for r in reports])
    for name, arrays in getattr(algorithm, "events", lambda _: {})(state).items():
        folder.save_split(f"{number:08d}-{name}", arrays)
    verdicts = list(getattr(algorithm, "verdicts", lambda _: ())(state))
    for verdict in verdicts:
        folder.log({"round": number, **verdict}, VERDICTS)
    return verdicts


def numbers(algorithm: Algorithm[State], state: State) -> dict[str, Any]:
    """For a line of metrics."""
    found: dict[str, Any] = getattr(algorithm, "numbers", lambda _: {})(state)
    return found


def save_end(folder: RunFolder, algorithm: Algorithm[State], state: State) -> None:
    """The tree and the matrices."""
    if hasattr(algorithm, "tree"):
        folder.save_tree(algorithm.tree(state))
    for name, arrays in getattr(algorithm, "matrices", lambda _: {})(state).items():
        folder.save_split(name, arrays)


def save_models(folder: RunFolder, model: FlatModel, clustering: Clustering, kind: str) -> None:
    """One file per cluster that says how many clients it has, and of which `kind` the model is."""
    dicts = [model.state_dict(theta) for theta in clustering.models]
    sizes = np.bincount(clustering.labels, minlength=len(dicts))
    folder.save_models(clustering.numbers, dicts, [{"clients": str(n), "model": kind} for n in sizes])
