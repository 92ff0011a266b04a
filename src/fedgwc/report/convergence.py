"""The MSE of P round by round, from a replay of the recorded losses."""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np

from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Algorithm
from fedgwc.core.types import Floats
from fedgwc.report.data import Run
from fedgwc.runs.progress import SILENT, Watcher
from fedgwc.runs.replay import Trace, clusters_of, read_trace, replay

BINS = 350  # over the whole run: about as many as a screen can show apart


def trace_of(run: Run) -> Trace | None:
    """Read the clients' reports, where the run kept them."""
    if not any((run.path / "trace").glob("*.npz")):
        return None
    try:
        return read_trace(run.path)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{run.path / 'trace'} cannot be read: {error}") from None


def mse_by_cluster(
    trace: Trace, algorithm: Algorithm[Any], seed: int, progress: Watcher = SILENT
) -> dict[int, tuple[Floats, Floats]]:
    """Compute the MSE of consecutive P per cluster.

    (Rounds, MSE). The run's own settings and seed give the run's own clusters again.

    That holds until clients wait for a second look, which no recording can repeat; there it ends.
    """
    seen: dict[int, list[tuple[int, float]]] = {}
    waited = False

    def watch(number: int, state: Any) -> None:
        nonlocal waited
        progress.step(number)
        waited = waited or (isinstance(algorithm, Auto) and algorithm.second_look and _groups_found(state))
        if waited:
            return
        for cluster in clusters_of(state):
            if cluster.gamma.any() and cluster.mse > 0:  # somebody has been seen in this window
                seen.setdefault(cluster.id, []).append((number, cluster.mse))

    progress.start("rounds replayed", len(trace.ids), 0)
    try:
        replay(trace, algorithm, seed=seed, watch=watch, reuse=True)
    finally:
        progress.stop()
    width = max(1, len(trace.ids) // BINS)
    return {c: _binned(np.array(rows, np.float64), width) for c, rows in seen.items() if len(rows) > 1}


def _groups_found(state: Any) -> bool:
    """Tell whether the last round divided clients into groups, on trial."""
    return any(v.reason == "groups" for v in state.verdicts)


def _binned(points: Floats, width: int) -> tuple[Floats, Floats]:
    """Average points [T, 2] over `width` rounds each.

    As (round, geometric mean): single rounds jump with who was sampled.
    """
    parts = np.array_split(points, max(2, len(points) // width))
    return np.array([p[:, 0].mean() for p in parts]), np.exp([np.log(p[:, 1]).mean() for p in parts])
