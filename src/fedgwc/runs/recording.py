"""Recording of an algorithm into a run's folder.

The same in simulation and in a real federation; parts that only some algorithms offer are saved where there are any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedgwc.core.protocols import Algorithm, Observable, Observation, State
from fedgwc.core.types import Clustering, Ids
from fedgwc.engines.meter import Reported
from fedgwc.runs.folder import VERDICTS, RunFolder
from fedgwc.training.flat_model import FlatModel


def observed(algorithm: Algorithm[State], state: State) -> Observation:
    """Return the algorithm's account of the last round.

    Empty for an algorithm that gives none.
    """
    return algorithm.observe(state) if isinstance(algorithm, Observable) else Observation()


def save_round(
    folder: RunFolder, number: int, seen: Observation, reports: Sequence[Reported], cluster_numbers: Ids | None
) -> None:
    """Save a round's trace, divisions and decisions; the numbers [M] are of the clusters that trained in it."""
    named = reports if cluster_numbers is None else [replace(r, which=cluster_numbers[r.which]) for r in reports]
    folder.observe(number, list(named))
    for name, arrays in seen.splits.items():
        folder.save_split(f"{number:08d}-{name}", arrays)
    for decision in seen.decisions:
        folder.log({"round": number, **decision}, VERDICTS)


def save_end(folder: RunFolder, algorithm: Algorithm[State], state: State) -> None:
    """Save the tree and the matrices."""
    if not isinstance(algorithm, Observable):
        return
    if tree := algorithm.tree(state):
        folder.save_tree(tree)
    for name, arrays in algorithm.matrices(state).items():
        folder.save_split(name, arrays)


def save_models(folder: RunFolder, model: FlatModel, clustering: Clustering, kind: str) -> None:
    """Save a model file per cluster.

    Each says how many clients it has, and of which `kind` the model is.
    """
    dicts = [model.state_dict(theta) for theta in clustering.models]
    sizes = np.bincount(clustering.labels, minlength=len(dicts))
    folder.save_models(clustering.numbers, dicts, [{"clients": str(n), "model": kind} for n in sizes])
