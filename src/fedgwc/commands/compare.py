"""`fedgwc compare`."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from fedgwc.commands.tables import comparison_table, markdown, show
from fedgwc.errors import InputError
from fedgwc.experiment import Experiment
from fedgwc.progress import watcher
from fedgwc.record import RunFolder, new_folder
from fedgwc.runner import Result, run
from fedgwc.scale import scaled_experiment


def compare_command(
    recipe: str | None, algorithms: list[str], n_seeds: int, sets: list[str], out: Path | None, scale: str = "full"
) -> None:
    if n_seeds < 1:
        raise InputError(f"--seeds must be at least 1, got {n_seeds}")
    jobs = {
        (name, seed): scaled_experiment(recipe, [*sets, f"algorithm.name={name}", f"seed={seed}"], scale)
        for name in algorithms
        for seed in range(n_seeds)
    }
    folder = out or new_folder(next(iter(jobs.values())).recipe, "compare")
    results = {key: _once(job, folder / f"{key[0]}-seed{key[1]}", folder) for key, job in jobs.items()}
    table = comparison_table([(name, [results[name, s].last for s in range(n_seeds)]) for name in algorithms])
    show(table)
    (folder / "comparison.md").write_text(markdown(table), encoding="utf-8")
    with (folder / "comparison.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([table.head, *table.rows])
    print(f"\nWritten: {folder} (the runs, comparison.md, comparison.csv)")


def _once(job: Experiment, path: Path, whole: Path) -> Result:
    """A run that is there already is not done again; one that was interrupted goes on."""
    result = run(job, path, resume=RunFolder(path).has_run(), progress=watcher())
    if not result.finished:
        print(f"\nInterrupted and saved. The same command with --out {whole} goes on from here.", file=sys.stderr)
        sys.exit(130)
    return result
