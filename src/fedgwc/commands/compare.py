"""`fedgwc compare`: algorithms x settings x seeds on one recipe, in parallel where cores allow, ending in one table."""

from __future__ import annotations

import csv
import itertools
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fedgwc.commands.tables import Table, comparison_table, markdown, show
from fedgwc.core import cohort_size
from fedgwc.engines.settings import cores, device_of
from fedgwc.errors import InputError
from fedgwc.experiment import Experiment
from fedgwc.progress import watcher
from fedgwc.record import RunFolder, new_folder
from fedgwc.runner import Result, run, run_together
from fedgwc.scale import scaled_experiment
from fedgwc.settings import parse_axis

Setting = tuple[tuple[str, Any], ...]
IN_STEP = 8  # runs that train together on a GPU; --jobs changes it


@dataclass(frozen=True)
class Run:
    """One cell of the comparison."""

    algorithm: str
    setting: Setting  # the swept keys that concern this algorithm, with their values
    seed: int
    job: Experiment

    @property
    def name(self) -> str:
        return "-".join([self.algorithm, *(f"{k.split('.')[-1]}={v}" for k, v in self.setting), f"seed{self.seed}"])


def compare_command(
    recipe: str | None,
    algorithms: list[str],
    n_seeds: int,
    sets: list[str],
    out: Path | None,
    scale: str = "full",
    sweeps: list[str] | None = None,
    jobs: int = 0,
    equal: str = "rounds",
) -> None:
    if n_seeds < 1:
        raise InputError(f"--seeds must be at least 1, got {n_seeds}")
    if equal not in ("rounds", "updates"):
        raise InputError(f"--equal must be rounds or updates, got {equal!r}")
    runs = _plan(recipe, algorithms, n_seeds, sets, scale, sweeps or [], equal)
    folder = out or new_folder(runs[0].job.recipe, "compare")
    last = _do_all(runs, folder, jobs)
    every, best = _tables(runs, last)
    for name, table in (("comparison", best), ("everything-tried", every)):
        (folder / f"{name}.md").write_text(markdown(table), encoding="utf-8")
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([table.head, *table.rows])
    show(best)
    print(f"\nWritten: {folder} (the runs, comparison.md and .csv, everything-tried.md and .csv)")


def _plan(
    recipe: str | None, algorithms: list[str], n_seeds: int, sets: list[str], scale: str, sweeps: list[str], equal: str
) -> list[Run]:
    axes = [parse_axis(s) for s in sweeps]
    unused = [key for key, _ in axes if key.split(".")[0] not in ("algorithm", "local", "data", "model", "rounds", *algorithms)]
    if unused:
        raise InputError(
            f"no algorithm of this comparison has the swept setting {unused[0]}; compared are {', '.join(algorithms)}"
        )
    runs = []
    for name, seed in itertools.product(algorithms, range(n_seeds)):
        for setting in _settings(name, axes):
            chosen = [f"{key}={value}" for key, value in setting]
            build = [*sets, f"algorithm.name={name}", f"seed={seed}", *chosen]
            runs.append(Run(name, setting, seed, scaled_experiment(recipe, build + _budget(recipe, build, scale, equal), scale)))
    return runs


def _settings(algorithm: str, axes: list[tuple[str, list[Any]]]) -> Iterator[Setting]:
    """The combinations of swept values that concern an algorithm: `ifca.k` is ifca's alone, `local.lr` everybody's."""
    shared = ("algorithm", "local", "data", "model", "rounds")
    mine = [(key, values) for key, values in axes if key.split(".")[0] in (algorithm, *shared)]
    for values in itertools.product(*[v for _, v in mine]):
        yield tuple(zip([k for k, _ in mine], values, strict=True))


def _budget(recipe: str | None, sets: list[str], scale: str, equal: str) -> list[str]:
    """With --equal updates, everybody stops after as many client updates as one cohort a round makes."""
    if equal == "rounds":
        return []
    job = scaled_experiment(recipe, sets, scale)
    cohort = cohort_size(job.federation().n_clients, job.algorithm.rate)  # type: ignore[attr-defined]
    return [f"evaluate.client_updates={job.rounds * cohort}"]


def _do_all(runs: list[Run], folder: Path, jobs: int) -> dict[str, dict[str, Any]]:
    """The last metrics of every run, by its name. What is there already is not done again."""
    if device_of(runs[0].job.engine).type == "cuda":
        return _do_in_step(runs, folder, jobs or IN_STEP)
    n_jobs = min(jobs or cores(), len(runs))
    if n_jobs == 1:
        return {r.name: _do(r.job, folder / r.name, folder, watch=True) for r in runs}
    last: dict[str, dict[str, Any]] = {}
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the workers: one core each, and nobody spins on another's
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ProcessPoolExecutor(n_jobs, get_context("spawn")) as pool:
        waiting = {pool.submit(_do, r.job, folder / r.name, folder): r for r in runs}
        for future in as_completed(waiting):
            run_ = waiting[future]
            last[run_.name] = row = future.result()
            done = f"{len(last)}/{len(runs)} {run_.name}: accuracy {row['accuracy']:.1%}, {row['clusters']} clusters"
            print(f"{done}, {row['seconds']:.0f} s", file=sys.stderr, flush=True)
    return last


def _do_in_step(runs: list[Run], folder: Path, most: int) -> dict[str, dict[str, Any]]:
    """On a GPU: runs of one kind share its stacked axis, `most` at a time."""
    kinds: dict[str, list[Run]] = {}
    for r in runs:
        alike = {k: v for k, v in r.job.to_json().items() if k in ("data", "model", "local", "engine")}
        kinds.setdefault(repr(alike), []).append(r)
    last: dict[str, dict[str, Any]] = {}
    for alike_runs in kinds.values():
        for at in range(0, len(alike_runs), most):
            some = alike_runs[at : at + most]
            results = run_together([(r.job, folder / r.name) for r in some], progress=watcher())
            _stop_if_interrupted(results, folder)
            last |= {r.name: result.last for r, result in zip(some, results, strict=True)}
    return last


def _do(job: Experiment, path: Path, whole: Path, watch: bool = False) -> dict[str, Any]:
    """One run, resumed where it was interrupted."""
    result = run(job, path, resume=RunFolder(path).has_run(), progress=watcher() if watch else None)
    _stop_if_interrupted([result], whole)
    return result.last


def _stop_if_interrupted(results: list[Result], whole: Path) -> None:
    if not all(r.finished for r in results):
        print(f"\nInterrupted and saved. The same command with --out {whole} goes on from here.", file=sys.stderr)
        sys.exit(130)


def _tables(runs: list[Run], last: dict[str, dict[str, Any]]) -> tuple[Table, Table]:
    """All settings, and the best setting of each algorithm beside what was tried."""
    cells: dict[tuple[str, Setting], list[dict[str, Any]]] = {}
    for r in runs:
        cells.setdefault((r.algorithm, r.setting), []).append(last[r.name])
    finds = {r.algorithm: _finds_clusters(r.job.algorithm) for r in runs}
    every = _with_automatic(comparison_table([(_title(a, s), rows) for (a, s), rows in cells.items()]), finds)
    best, tried = [], []
    for algorithm in dict.fromkeys(r.algorithm for r in runs):
        mine = {s: rows for (a, s), rows in cells.items() if a == algorithm}
        winner = max(mine, key=lambda s: sum(row["accuracy"] for row in mine[s]) / len(mine[s]))
        best.append((_title(algorithm, winner), mine[winner]))
        tried.append("" if len(mine) == 1 else ", ".join("/".join(str(v) for _, v in s) for s in mine))
    table = _with_automatic(comparison_table(best), finds)
    if any(tried):
        table = Table([*table.head, "tried"], [[*row, t] for row, t in zip(table.rows, tried, strict=True)])
    return every, table


def _finds_clusters(algorithm: object) -> str:
    """Whether the number of clusters is found, is given (a `k`), or is no question."""
    return "no" if hasattr(algorithm, "k") else "yes" if hasattr(algorithm, "tree") else "/"


def _with_automatic(table: Table, finds: dict[str, str]) -> Table:
    rows = [[*row[:2], finds[row[0].split()[0]], *row[2:]] for row in table.rows]
    return Table([*table.head[:2], "automatic", *table.head[2:]], rows)


def _title(algorithm: str, setting: Setting) -> str:
    return " ".join([algorithm, *(f"{k.split('.')[-1]}={v}" for k, v in setting)])
