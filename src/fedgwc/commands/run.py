"""`fedgwc run`."""

from __future__ import annotations

import sys
from pathlib import Path

from fedgwc.commands.tables import comparison_table, show
from fedgwc.experiment import DEFAULT_RECIPE, Experiment, load
from fedgwc.progress import watcher
from fedgwc.runner import Result, run

DEFAULT_JOB = ("fedavg", "fedgwc")


def run_command(recipe: str | None, sets: list[str], out: Path | None, resume: bool) -> None:
    if resume:
        job = load(recipe, sets) if recipe or sets else None
        results = {"resumed": _finish(run(job, out, resume=True, progress=watcher()))}
    elif recipe is None and not any(s.split("=")[0].strip() == "algorithm.name" for s in sets):
        jobs = {name: load(DEFAULT_RECIPE, [*sets, f"algorithm.name={name}"]) for name in DEFAULT_JOB}
        print(f"{jobs['fedavg'].about}: one model for all (fedavg) against one per group (fedgwc)\n", file=sys.stderr)
        results = {name: _one(job, out / name if out else None) for name, job in jobs.items()}
    else:
        job = load(recipe, sets)
        results = {job.algorithm_name: _one(job, out)}
    show(comparison_table([(name, [r.last]) for name, r in results.items()]))
    print("\nWritten: " + ", ".join(str(r.folder) for r in results.values()))


def _one(job: Experiment, out: Path | None) -> Result:
    return _finish(run(job, out, progress=watcher()))


def _finish(result: Result) -> Result:
    if not result.finished:
        print(f"\nInterrupted and saved. Resume with: fedgwc run --resume --out {result.folder}", file=sys.stderr)
        sys.exit(130)
    return result
