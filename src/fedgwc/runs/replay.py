"""Replay: recorded losses clustered again under other settings.

A replay is the real algorithm on an engine that answers every cohort with what was reported in that round, so it needs no
data, no model and no training. Up to the first split of the replay this is exact. After it the trace still holds the losses
that the *recorded* models gave, not those that the new clusters' own models would have given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.algorithms.method import MethodState
from fedgwc.core.errors import InputError
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import Algorithm, HoldsBack, SaysWhatItNeeds, UpdatesInPlace
from fedgwc.core.types import Floats, Ids, Rng, Scores, Split, Updates
from fedgwc.core.work import Work
from fedgwc.io.npz import read_npz
from fedgwc.metrics.inputs import histogram
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.trace import check_reports

MOST_CLIENTS = 10**7
# What may be known of each client: axes, kinds of numbers, and what they are.
CLIENTS = {
    "truth": (1, "iu", "the number of one group"),
    "sizes": (1, "iuf", "one number of samples"),
    "counts": (2, "iuf", "a row of class counts"),
    "freq": (2, "iuf", "a row of class frequencies"),
}


@dataclass(frozen=True)
class Trace:
    """T rounds of at most n sampled clients with at most S losses each."""

    ids: Ids  # [T, n], -1 where fewer were sampled
    losses: NDArray[np.floating]  # [T, n, S], NaN where fewer steps were made
    n_clients: int
    truth: Ids | None = None  # [N] the group each client was built in
    counts: Floats | None = None  # [N, C] class counts or frequencies; None: unknown
    sizes: Ids | None = None  # [N] training samples
    rewards: Floats | None = None  # [T, n] of rounds in which losses were private, else NaN
    readings: Floats | None = None  # [T, n, 4] likewise, of each row's cohort


def read_trace(path: Path) -> Trace:
    """Read a trace from a run folder or an npz file.

    The file has `ids` and `L` (and perhaps `truth`, `freq` or `counts`, `sizes`).
    """
    if path.is_dir():
        return trace_of(RunFolder(path).trace_with_clients(), str(path))
    if not path.is_file():
        raise InputError(f"no trace at {path}: give a run folder or an npz file")
    return trace_of(read_npz(path, ("ids", "L", "truth", "freq", "counts", "sizes", "rewards", "readings")), str(path))


def trace_of(arrays: dict[str, NDArray[Any]], where: str) -> Trace:
    check_reports(arrays, where)
    ids, losses, rewards = arrays["ids"], arrays["L"], arrays.get("rewards")
    if not ids.size or ids.max() < 0:
        raise InputError(f"{where} names no client: every entry of ids is negative, which marks places that nobody took")
    if ids.max() > MOST_CLIENTS:
        raise InputError(f"{where}: ids must be client numbers up to {MOST_CLIENTS:,}, got {ids.max()}; number clients from 0")
    metadata = {name: arrays[name] for name in CLIENTS if name in arrays}
    n_clients = max([int(ids.max()) + 1] + [len(a) for a in metadata.values() if a.ndim])
    for name, values in metadata.items():
        _check_clients(name, values, n_clients, where)
    truth, sizes, counts = metadata.get("truth"), metadata.get("sizes"), metadata.get("counts", metadata.get("freq"))
    if truth is not None and len(np.unique(truth)) < 2:
        truth = None  # constant: unknown
    counts = None if counts is None else histogram(counts.astype(np.float64))
    if rewards is None and not losses.shape[2]:
        raise InputError(
            f"{where} holds no losses and no rewards: its losses were private, and its algorithm asked for no rewards"
        )
    if losses.dtype == np.float16:  # kept small, but computed with more digits: what seems equal there was not
        losses = losses.astype(np.float32)
    return Trace(ids.astype(np.int64), losses, n_clients, truth, counts, sizes, rewards, arrays.get("readings"))


def _check_clients(name: str, values: NDArray[Any], n_clients: int, where: str) -> None:
    ndim, kinds, what = CLIENTS[name]
    if values.ndim != ndim or len(values) != n_clients or values.dtype.kind not in kinds:
        shape = f"[{n_clients}]" if ndim == 1 else f"[{n_clients}, C]"
        raise InputError(f"{where}: {name} must be {what} per client, {shape}, got {values.shape} of {values.dtype}")
    if name != "truth" and not (np.isfinite(values) & (values >= 0)).all():
        raise InputError(f"{where}: {name} must be finite and >= 0, got {values.min()} to {values.max()}")


class Recorded:
    """An engine that returns the recorded losses of one round of a trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.row = 0

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        ids, losses = self.trace.ids[self.row], self.trace.losses[self.row]
        there = ids >= 0
        sampled = ids[there]
        sizes = np.ones(len(sampled)) if self.trace.sizes is None else self.trace.sizes[sampled]
        models, losses = torch.zeros(len(sampled), 1), torch.from_numpy(losses[there])
        private = (None, None) if losses.isfinite().any() else (self.trace.rewards, self.trace.readings)
        rewards, readings = (None if x is None else torch.from_numpy(x[self.row][there]) for x in private)
        return Updates(sampled, models, losses, torch.from_numpy(sizes), None, rewards, readings)

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        raise NotImplementedError("a trace holds training losses only")


def replay(
    trace: Trace,
    algorithm: Algorithm[Any],
    *,
    seed: int = 0,
    watch: Callable[[int, Any], None] | None = None,
    reuse: bool = False,
) -> Any:
    """Run all recorded rounds; `watch` sees the state after each.

    No client sits out for a trial, because recorded clients cannot be asked later.

    Recorded clients cannot be asked to evaluate, so trials, where clients wait, are off.

    With `reuse` a round is written over the last one, which spares copies of large matrices: for a `watch` that keeps nothing.
    """
    engine = Recorded(trace)
    state = algorithm.init(torch.zeros(1), trace.n_clients, Layout.unnamed(1))
    in_place = (reuse or watch is None) and isinstance(algorithm, UpdatesInPlace)
    step = algorithm.advance if in_place and isinstance(algorithm, UpdatesInPlace) else algorithm.round
    for row in range(len(trace.ids)):
        engine.row = row
        state = step(state, engine, Rng(seed, row + 1))
        if isinstance(algorithm, HoldsBack) and len(algorithm.held_back(state)):
            state = replace(state, clusters=tuple(replace(c, waiting=None, witnesses=None) for c in state.clusters))
        if watch:
            watch(row + 1, state)
    return state


def can_replay(algorithm: Algorithm[Any]) -> bool:
    """Tell whether an algorithm needs losses only.

    A trace holds nothing else.
    """
    return isinstance(algorithm, SaysWhatItNeeds) and algorithm.learns_from == "rewards"


def tree_of(state: Any) -> Any:
    """Return the part of a state that has `clusters` (the leaves) and `splits`."""
    return state.groups if isinstance(state, MethodState) else state


def clusters_of(state: Any) -> tuple[Any, ...]:
    """Return the leaves of a state that has a tree of clusters."""
    clusters: tuple[Any, ...] = tree_of(state).clusters
    return clusters
