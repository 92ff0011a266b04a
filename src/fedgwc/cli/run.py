"""`fedgwc run`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedgwc.algorithms import ALGORITHMS
from fedgwc.cli.why import why_of
from fedgwc.core.assignments import parse_assignment
from fedgwc.core.errors import InputError
from fedgwc.runs.experiment import DEFAULT_RECIPE, Experiment, assigned
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import Result, run
from fedgwc.runs.progress import watcher
from fedgwc.runs.scale import scaled_experiment
from fedgwc.runs.tables import comparison_table, show
from fedgwc.runs.tensorboard import TensorBoard, check_tracker

DEFAULT_JOB = ("fedavg", "fedgwc", "auto")
Job = Experiment | dict[str, Any] | None  # None: the one in the folder


NOT_BEGUN = "Interrupted before the run had begun; nothing was written."


def run_command(
    recipe: str | None, sets: list[str], out: Path | None, resume: bool, scale: str = "full", track: str | None = None
) -> None:
    if track is not None:
        check_tracker(track)
    if resume:
        results = _resumed(_to_resume(recipe, sets, out, scale), out, track)
    elif recipe is None and not any(s.split("=")[0].strip() == "algorithm.name" for s in sets):
        if out is not None and RunFolder(out).has_run():  # its two runs would be written inside of that one
            raise InputError(f"{out} already holds a run; --resume goes on with it, another --out begins anew")
        _check_settings_apply(sets, DEFAULT_JOB)
        jobs = {name: scaled_experiment(DEFAULT_RECIPE, [*sets, f"algorithm.name={name}"], scale) for name in DEFAULT_JOB}
        summary = "one model for all (fedavg), one per group as the paper finds groups (fedgwc), and as our own rule does (auto)"
        print(f"{jobs['fedavg'].about}: {summary}\n", file=sys.stderr)
        results = {name: _run_one(job, out / name if out else None, track) for name, job in jobs.items()}
    else:
        job = scaled_experiment(recipe, sets, scale)
        _check_settings_apply(sets, [job.algorithm_name])
        results = {job.algorithm_name: _run_one(job, out, track)}
    show(comparison_table([(name, [r.last]) for name, r in results.items()], detail=False))
    for result in results.values():
        folder = RunFolder(result.folder)
        if reason := why_of(folder):
            print(f"\n{_algorithm_of(folder)}: {reason}")
    print("\nWritten: " + ", ".join(str(r.folder) for r in results.values()))


def _check_settings_apply(sets: list[str], names: Sequence[str]) -> None:
    """Refuse a command-line setting of an algorithm that does not run.

    A recipe may have settings for any algorithm; who sets one on the command line means the one that runs.
    """
    applicable = {part for name in names for part in (name, name.partition("-")[0])}
    for path, _ in map(parse_assignment, sets):
        if path[0] in ALGORITHMS and path[0] not in applicable:
            raise InputError(
                f"{'.'.join(path)} is a setting of {path[0]}, and this runs {' and '.join(names)}; "
                f"add --set algorithm.name={path[0]}, or leave it out"
            )


def _resumed(job: Job, out: Path | None, track: str | None) -> dict[str, Result]:
    """Return the resumed result under its algorithm's name.

    If there was nothing left to do, that is said.
    """
    before = _finished_at(out)
    result = _run_one(job, out, track, resume=True)
    if before is not None and before == result.last.get("round"):
        print(f"{result.folder} was already finished, with round {before:,}; --set rounds=N makes it longer\n", file=sys.stderr)
    return {_algorithm_of(RunFolder(result.folder)): result}


def _finished_at(out: Path | None) -> int | None:
    """Return the last round of a run that has its models.

    These are written at its end.
    """
    if out is None or not any((out / "models").glob("*.safetensors")):
        return None
    rows = RunFolder(out).metrics()
    return rows[-1].get("round") if rows else None


def _algorithm_of(folder: RunFolder) -> str:
    return str(folder.config()["experiment"]["algorithm"]["name"])


def _to_resume(recipe: str | None, sets: list[str], out: Path | None, scale: str) -> Job:
    """Return the recipe or settings to resume with; None: the folder's.

    Without a recipe, `sets` change what the folder itself says.
    """
    if recipe is None and sets and out is not None:
        return assigned(RunFolder(out).config()["experiment"], sets)
    return scaled_experiment(recipe, sets, scale) if recipe else None


def _run_one(job: Job, out: Path | None, track: str | None, resume: bool = False) -> Result:
    try:
        result = run(job, out, resume=resume, progress=watcher() if track is None else TensorBoard(watcher()))
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(str(interrupt) or NOT_BEGUN) from None
    return _finish(result)


def _finish(result: Result) -> Result:
    if not result.finished:
        raise KeyboardInterrupt(f"Interrupted and saved. Resume with: fedgwc run --resume --out {result.folder}")
    return result
