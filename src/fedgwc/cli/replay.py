"""`fedgwc replay`."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.groups import labels_of
from fedgwc.cli.why import why
from fedgwc.core.assignments import parse_assignment, parse_axis, set_path
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Algorithm
from fedgwc.core.settings import convert, override
from fedgwc.metrics.table import clustering_scores
from fedgwc.runs.delayed_progress import DelayedWatcher
from fedgwc.runs.experiment import DEFAULT_ALGORITHM, experiment
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.plugins import entry_named
from fedgwc.runs.progress import Watcher, watcher
from fedgwc.runs.recording import observed
from fedgwc.runs.replay import Trace, can_replay, clusters_of, read_trace, replay, tree_of
from fedgwc.runs.tables import Table, show

Verdicts = list[dict[str, Any]]  # of windows, in the order of rounds


def replay_command(path: Path, sets: list[str], sweeps: list[str], rounds: int | None, export: Path | None) -> None:
    if export is not None and (export.suffix != ".npz" or export.exists()):
        raise InputError(f"--export writes a new npz file; {export} exists already or does not end in .npz")
    trace = read_trace(path)
    if rounds is not None:
        by_round = {name: getattr(trace, name) for name in ("ids", "losses", "rewards", "readings")}
        trace = replace(trace, **{name: a[:rounds] for name, a in by_round.items() if a is not None})
    if export is not None:
        _export(trace, export)
    axes = [parse_axis(s) for s in sweeps]
    settings = [dict(zip([a[0] for a in axes], values, strict=True)) for values in itertools.product(*[a[1] for a in axes])]
    base, seed = _recorded_with(path)
    algorithms = [algorithm_of(sets, s, base) for s in settings]
    _say_recorded_by(path, dict(parse_assignment(s) for s in sets).get(("algorithm", "name"), DEFAULT_ALGORITHM))
    try:
        results = _replays(trace, algorithms, seed)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Interrupted. The run is as it was; the same command begins anew.") from None
    if len(results) == 1:
        _print_splits(*results[0], algorithms[0], trace.n_clients)
    numbers = [_numbers(trace, state) for state, _ in results]
    rows = [[*map(str, s.values()), *row.values()] for s, row in zip(settings, numbers, strict=True)]
    show(Table([*settings[0], *numbers[0]], rows))


def _recorded_with(path: Path) -> tuple[Algorithm[Any] | None, int]:
    """Return the recording run's settings and seed, if they can be replayed.

    `--set` then changes these.

    Any other algorithm need not even be known here: its losses are all that is used.
    """
    if not path.is_dir():
        return None, 0
    tables = RunFolder(path).config()["experiment"]
    seed = convert(tables.get("seed", 0), int, "seed")
    return (experiment(tables).algorithm if _is_known(path) else None), seed


def _is_known(path: Path) -> bool:
    """Tell whether the recording algorithm is one that can be replayed."""
    return _name(path) in ALGORITHMS and can_replay(ALGORITHMS[_name(path)])


def _name(path: Path) -> str:
    """Return the name of the algorithm that recorded a run."""
    algorithm = RunFolder(path).config()["experiment"].get("algorithm")
    return str(algorithm.get("name", "")) if isinstance(algorithm, dict) else ""


def _say_recorded_by(path: Path, chosen: str) -> None:
    """Say which algorithm's models the losses belong to.

    Losses depend on the models that gave them, which are the recording algorithm's for the whole replay.
    """
    if path.is_dir() and not _is_known(path):
        what = f"recorded by {_name(path) or 'an algorithm without a name'}, clustered here as {chosen} would"
        print(f"{path}: {what}; the losses stay those of the models that were trained", file=sys.stderr)


def algorithm_of(sets: list[str], chosen: dict[str, Any], base: Algorithm[Any] | None = None) -> Algorithm[Any]:
    """Build the algorithm to replay, with assignments over the recorded one's settings."""
    table: dict[str, Any] = {}
    for path, value in [parse_assignment(s) for s in sets] + [(tuple(k.split(".")), v) for k, v in chosen.items()]:
        table = set_path(table, path, value)
    settings = table.pop("algorithm", {})
    if table or not isinstance(settings, dict):
        got = ", ".join(table) or f"algorithm={settings}"
        raise InputError(f"a replay has algorithm settings only (algorithm.gain=4), got {got}")
    name = settings.pop("name", None)
    start = base if name is None and base is not None else entry_named(ALGORITHMS, name or DEFAULT_ALGORITHM, "algorithm")
    if not can_replay(start):
        raise InputError(
            f"{name} does not cluster by losses; replay {', '.join(n for n in ALGORITHMS if can_replay(ALGORITHMS[n]))}"
        )
    return override(start, settings, "algorithm")


def _replays(trace: Trace, algorithms: list[Algorithm[Any]], seed: int) -> list[tuple[Any, Verdicts]]:
    """Run replays one after the other; the time left is that of all."""
    progress, n_rounds = DelayedWatcher(watcher()), len(trace.ids)
    progress.start("replay", n_rounds * len(algorithms), 0)
    try:
        return [_one(trace, algorithm, seed, progress, i * n_rounds) for i, algorithm in enumerate(algorithms)]
    finally:
        progress.stop()


def _one(trace: Trace, algorithm: Algorithm[Any], seed: int, progress: Watcher, done: int) -> tuple[Any, Verdicts]:
    """Replay once; `done` are the rounds of the replays before."""
    verdicts: Verdicts = []

    def watch(number: int, state: Any) -> None:
        verdicts.extend({"round": number, **v} for v in observed(algorithm, state).decisions)
        losses = trace.losses[number - 1]
        finite = losses[np.isfinite(losses)]  # none where they were private
        progress.round(done + number, float(finite.mean()) if finite.size else float("nan"), len(clusters_of(state)))

    return replay(trace, algorithm, seed=seed, watch=watch, reuse=True), verdicts


def _print_splits(state: Any, verdicts: Verdicts, algorithm: Algorithm[Any], n_clients: int) -> None:
    tree = tree_of(state)
    if not tree.splits:
        print(why(verdicts, algorithm.too_few(n_clients)) if isinstance(algorithm, Auto) else "no split")
    reasons = {v["cluster"]: v["why"] for v in verdicts if v["divides"]}
    for s in tree.splits:
        children = np.bincount(s.labels)
        births = [(c.parent, c.scores) for c in (*tree.clusters, *tree.splits)]
        scores_of_split = next(scores for parent, scores in births if parent == s.id)
        scores = "  ".join(f"n={n}: {value:.3f}" for n, value in scores_of_split.items())
        sizes = " + ".join(map(str, children))
        reason = reasons.get(s.id, f"Davies-Bouldin {scores}")
        print(f"round {s.ended}: cluster {s.id} of {len(s.members)} clients -> {sizes}   {reason}")
    print()


def _numbers(trace: Trace, state: Any) -> dict[str, str]:
    state = tree_of(state)
    labels = labels_of([c.members for c in state.clusters])
    scores = clustering_scores(labels, trace.counts, trace.truth)
    row = {
        "clusters": str(len(state.clusters)),
        "sizes": " ".join(str(len(c.members)) for c in state.clusters),
        "first split": str(min((s.ended for s in state.splits), default="–")),
        "MSE of P": f"{np.mean([c.mse for c in state.clusters]):.1e}",
    }
    wanted = (["ari", "rand"] if trace.truth is not None else []) + (["was", "wadb"] if trace.counts is not None else [])
    titles = {"ari": "adj. Rand", "rand": "Rand", "was": "WAS", "wadb": "WADB"}
    return row | {titles[k]: f"{scores[k]:z.2f}" if k in scores else "–" for k in wanted}


def _export(trace: Trace, path: Path) -> None:
    optional = {name: getattr(trace, name) for name in ("truth", "counts", "sizes", "rewards", "readings")}
    arrays = {k: v for k, v in optional.items() if v is not None}
    np.savez_compressed(path, ids=trace.ids.astype(np.int32), L=trace.losses, **arrays)
    print(f"wrote {path}: {len(trace.ids)} rounds of {trace.n_clients} clients")
