"""The trace of a run: each round's clients, clusters and reports.

Written in pieces, read as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.core.errors import InputError
from fedgwc.engines.meter import Reported
from fedgwc.io.npz import read_npz

Arrays = dict[str, NDArray[Any]]
MOST_PADDING = 100  # times as much as was reported; cohorts and steps that differ more are not of one run
SMALL = 10**6  # losses that may be padded to however little was reported


def trace_arrays(rows: list[tuple[int, Reported]]) -> Arrays:
    """Collect some rounds' reports in padded arrays."""
    width = max(len(r.clients) for _, r in rows)
    steps = max(r.losses.shape[1] for _, r in rows)
    ids = np.full((len(rows), width), -1, np.int32)
    cluster = np.full((len(rows), width), -1, np.int32)
    losses = np.full((len(rows), width, steps), np.nan, rows[0][1].losses.dtype)
    rewards, readings = np.full((len(rows), width), np.nan), np.full((len(rows), width, 4), np.nan)
    for i, (_, r) in enumerate(rows):
        n, s = r.losses.shape
        ids[i, :n], cluster[i, :n], losses[i, :n, :s] = r.clients, r.which, r.losses
        rewards[i, :n] = np.nan if r.rewards is None else r.rewards
        readings[i, :n] = np.nan if r.readings is None else r.readings
    arrays = {"ids": ids, "L": losses, "cluster": cluster, "round": np.array([number for number, _ in rows], np.int32)}
    return arrays if all(r.rewards is None for _, r in rows) else {**arrays, "rewards": rewards, "readings": readings}


def read_pieces(pieces: Sequence[tuple[Path, int, int]]) -> Arrays:
    """Read the whole trace from its files.

    Each file's name says its first and last round.
    """
    if not pieces:
        raise InputError("the run has no trace yet; it is written at checkpoints")
    done = 0
    for path, first, last in pieces:
        if first != done + 1:
            what = f"rounds {done + 1} to {first - 1} are missing" if first > done else f"round {first} is there twice"
            raise InputError(
                f"{path.parent} is not the trace of a run: before {path.name} {what}; put it back as the run wrote it"
            )
        done = last
    return join_traces([_piece(*piece) for piece in pieces])


def _piece(path: Path, first: int, last: int) -> Arrays:
    arrays = read_npz(path)
    check_reports(arrays, str(path))
    ids = arrays["ids"]
    for name, shape in (("cluster", ids.shape), ("round", ids.shape[:1])):
        if name not in arrays or arrays[name].shape != shape or arrays[name].dtype.kind not in "iu":
            raise InputError(f"{path} is not a piece of a trace: it needs whole numbers {name} of shape {list(shape)}")
    rounds = arrays["round"].astype(np.int64)  # [T]; an algorithm that trains twice in a round has two rows of it
    if not len(rounds) or (rounds[0], rounds[-1]) != (first, last) or not np.isin(np.diff(rounds), (0, 1)).all():
        raise InputError(f"{path} is not a piece of a trace: its rounds do not count from {first} to {last}, as its name says")
    return arrays


def check_reports(arrays: Arrays, where: str) -> None:
    """Check that a trace's ids, losses, rewards and readings fit together."""
    missing = [name for name in ("ids", "L") if name not in arrays]
    if missing:
        raise InputError(f"{where} has no {' and no '.join(missing)}; a trace holds ids [T, n] and L [T, n, S]")
    ids, losses = arrays["ids"], arrays["L"]
    if ids.ndim != 2 or losses.ndim != 3 or losses.shape[:2] != ids.shape:
        raise InputError(f"{where}: ids must be [T, n] and L [T, n, S], got {ids.shape} and {losses.shape}")
    if ids.dtype.kind not in "iu" or losses.dtype.kind != "f":
        raise InputError(f"{where}: ids must be client numbers and L floating point, got {ids.dtype} and {losses.dtype}")
    for name, shape, form in (("rewards", ids.shape, "[T, n]"), ("readings", (*ids.shape, 4), "[T, n, 4]")):
        if name in arrays and (arrays[name].shape != shape or arrays[name].dtype.kind != "f"):
            got = arrays[name]
            raise InputError(f"{where}: {name} must be {form} floating point, got {got.shape} of {got.dtype}")


def join_traces(parts: list[Arrays]) -> Arrays:
    """Join pieces of a trace, padded to common shapes."""
    width = max(p["ids"].shape[1] for p in parts)
    steps = max(p["L"].shape[2] for p in parts)
    _refuse_to_pad(parts, width, steps)
    joined: Arrays = {"round": np.concatenate([p["round"] for p in parts])}
    names = [("ids", -1), ("cluster", -1), ("L", np.nan)]
    for name, more in (("rewards", ()), ("readings", (4,))):  # of rounds in which losses were private
        if any(name in p for p in parts):
            parts = [{name: np.full((*p["ids"].shape, *more), np.nan), **p} for p in parts]
            names.append((name, np.nan))
    for name, fill in names:
        last = [steps - p["L"].shape[2] if name == "L" else 0 for p in parts]
        pad = [((0, 0), (0, width - p["ids"].shape[1]), (0, k))[: p[name].ndim] for p, k in zip(parts, last, strict=True)]
        joined[name] = np.concatenate([np.pad(p[name], w, constant_values=fill) for p, w in zip(parts, pad, strict=True)])
    return joined


def _refuse_to_pad(parts: list[Arrays], width: int, steps: int) -> None:
    """Refuse pieces that would make a huge padded table.

    Two small files, one of many rounds and one of many clients, would make a table of many times many.
    """
    n_rounds = sum(len(p["ids"]) for p in parts)
    reported = sum(p["ids"].size * max(1, p["L"].shape[2]) for p in parts)
    if n_rounds * width * max(1, steps) > max(SMALL, MOST_PADDING * reported):
        raise InputError(
            f"the trace cannot be put together: {n_rounds:,} rounds of up to {width:,} clients and {steps:,} steps are more than "
            f"{MOST_PADDING} times what was reported; a file in it is not the run's"
        )
