"""`fedgwc compare`: in parallel where cores allow, ending in tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from fedgwc.algorithms import ALGORITHMS
from fedgwc.comparison.contrasts import checked_reference
from fedgwc.comparison.exports import write_comparison
from fedgwc.comparison.outcomes import read_outcome
from fedgwc.comparison.plan import Run, plan_runs
from fedgwc.comparison.ranking import ranks_note, ranks_of, ranks_table
from fedgwc.comparison.results import Results, choice_notes, results
from fedgwc.comparison.scoring import Scoring
from fedgwc.comparison.settings import setting_text
from fedgwc.comparison.tables import notes, tables_of
from fedgwc.core.errors import InputError
from fedgwc.core.text import plural
from fedgwc.engines.settings import device_of
from fedgwc.runs.batch import INTERRUPTED, JobResult, run_all
from fedgwc.runs.folder import new_folder
from fedgwc.runs.plugins import entry_named
from fedgwc.runs.tables import show

ALL = "all"
FAILED = 1  # exit code where some runs could not be made, and the others are reported


@dataclass
class Done:
    """The runs that are done, and why others are not."""

    names: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


def compare_command(
    recipe: str | None,
    algorithms: list[str],
    n_seeds: int,
    sets: list[str],
    out: Path | None,
    scale: str = "full",
    sweeps: list[str] | None = None,
    jobs: int = 0,
    reference: str | None = None,
    scoring: Scoring | None = None,
    resume: bool = False,
) -> None:
    """Run all, write and show the tables; exit code 1 if a run failed."""
    scoring = scoring or Scoring()
    if n_seeds < 1:
        raise InputError(f"--seeds must be at least 1, got {n_seeds}")
    if algorithms == [ALL]:
        algorithms = list(ALGORITHMS)
    for name in algorithms:
        entry_named(ALGORITHMS, name, "algorithm")
    if resume and (out is None or not out.is_dir()):
        raise InputError("say which comparison to resume: --resume needs --out with its folder")
    against = checked_reference(reference, algorithms)
    runs = plan_runs(recipe, algorithms, n_seeds, sets, scale, sweeps or [])
    scoring.check([run.job for run in runs])
    device_of(runs[0].job.engine)  # before there is a folder
    folder = out or new_folder(runs[0].job.recipe, "compare")
    try:
        done = _do_all(runs, folder, jobs)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_after_interrupt(folder, new=out is None)) from None
    if not done.names:
        raise InputError(next(iter(done.failures.values())))
    found = results(runs, {name: read_outcome(folder / name) for name in done.names}, against, scoring)
    files = write_comparison(found, folder, done.failures)
    _show(found)
    print(f"\nWritten: {folder} (the runs, {', '.join(path.name for path in files)})")
    _end(done.failures, folder)


def _after_interrupt(folder: Path, new: bool) -> str:
    if new and not any(folder.iterdir()):
        folder.rmdir()
        return "Interrupted before a run had begun; nothing was written."
    return f"Interrupted and saved. The same command with --out {folder} goes on from here."


def _do_all(runs: list[Run], folder: Path, jobs: int) -> Done:
    """Do all runs; one that fails keeps no other from running."""
    done = Done()
    with closing(run_all([(r.name, r.job) for r in runs], folder, jobs)) as all_done:
        for n, each in enumerate(all_done, 1):
            if each.problem == INTERRUPTED:
                raise KeyboardInterrupt  # the run itself has saved and stopped
            if each.problem:
                done.failures[each.name] = each.problem
            else:
                done.names.append(each.name)
            print(f"{n}/{len(runs)} {_status(each)}", file=sys.stderr, flush=True)
    return done


def _status(each: JobResult) -> str:
    if each.problem:
        return f"{each.name} failed: {each.problem}"
    row = each.last
    return f"{each.name}: accuracy {row['accuracy']:.1%}, {plural(row['clusters'], 'cluster')}, {row['seconds']:.0f} s"


def _show(found: Results) -> None:
    """Print all tables, each with its title."""
    for condition, panel in found.panels.items():
        if condition:
            print(f"\n{setting_text(condition)}")
        for each in tables_of(panel, found.finds):
            print(f"\n{each.title}")
            show(each.table)
        print("", *notes(panel), sep="\n")
    if (ranks := ranks_of(list(found.panels.values()))) is not None:
        print("\nRanks")
        show(ranks_table(ranks))
        print(ranks_note(ranks))
    for note in choice_notes(found):
        print(note)


def _end(failures: Mapping[str, str], folder: Path) -> None:
    """Name what failed, and how to go on."""
    if not failures:
        return
    for name, problem in failures.items():
        print(f"fedgwc: {name} failed: {problem}", file=sys.stderr)
    print(f"{plural(len(failures), 'run')} failed; the same command with --out {folder} does only these again.", file=sys.stderr)
    sys.exit(FAILED)
