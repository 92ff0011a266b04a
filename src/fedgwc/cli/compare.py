"""`fedgwc compare`: in parallel where cores allow, ending in one table."""

from __future__ import annotations

import csv
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.errors import InputError
from fedgwc.core.text import plural
from fedgwc.engines.settings import device_of
from fedgwc.runs.batch import INTERRUPTED, run_all
from fedgwc.runs.comparison import Run, comparison_tables, plan_runs
from fedgwc.runs.folder import new_folder
from fedgwc.runs.plugins import entry_named
from fedgwc.runs.tables import markdown, show

ALL = "all"
PICKED = "Of each algorithm: the setting with the highest mean accuracy on test data, which flatters where many were tried."


def compare_command(
    recipe: str | None,
    algorithms: list[str],
    n_seeds: int,
    sets: list[str],
    out: Path | None,
    scale: str = "full",
    sweeps: list[str] | None = None,
    jobs: int = 0,
) -> None:
    if n_seeds < 1:
        raise InputError(f"--seeds must be at least 1, got {n_seeds}")
    if algorithms == [ALL]:
        algorithms = list(ALGORITHMS)
    for name in algorithms:
        entry_named(ALGORITHMS, name, "algorithm")
    runs = plan_runs(recipe, algorithms, n_seeds, sets, scale, sweeps or [])
    device_of(runs[0].job.engine)  # before there is a folder
    folder = out or new_folder(runs[0].job.recipe, "compare")
    try:
        last = _do_all(runs, folder, jobs)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_after_interrupt(folder, new=out is None)) from None
    every, best = comparison_tables(runs, last)
    for name, table in (("comparison", best), ("everything-tried", every)):
        (folder / f"{name}.md").write_text(markdown(table), encoding="utf-8")
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([table.head, *table.rows])
    show(best)
    if len(every.rows) > len(best.rows):
        print(f"\n{PICKED} {folder / 'everything-tried.md'} has all that were tried.")
    print(f"\nWritten: {folder} (the runs, comparison.md and .csv, everything-tried.md and .csv)")


def _after_interrupt(folder: Path, new: bool) -> str:
    if new and not any(folder.iterdir()):
        folder.rmdir()
        return "Interrupted before a run had begun; nothing was written."
    return f"Interrupted and saved. The same command with --out {folder} goes on from here."


def _do_all(runs: list[Run], folder: Path, jobs: int) -> dict[str, dict[str, Any]]:
    """Do all runs and return their last metrics by name."""
    last: dict[str, dict[str, Any]] = {}
    with closing(run_all([(r.name, r.job) for r in runs], folder, jobs)) as all_done:
        for done in all_done:
            if done.problem == INTERRUPTED:
                raise KeyboardInterrupt  # the run itself has saved and stopped
            if done.problem:
                raise InputError(done.problem)
            last[done.name] = row = done.last
            status = f"{len(last)}/{len(runs)} {done.name}: accuracy {row['accuracy']:.1%}, {plural(row['clusters'], 'cluster')}"
            print(f"{status}, {row['seconds']:.0f} s", file=sys.stderr, flush=True)
    return last
