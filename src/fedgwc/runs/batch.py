"""Many runs: in processes on a CPU, on one engine on a GPU.

Finished runs are not done again, and interrupted runs go on.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedgwc.core.errors import InputError, os_error_text
from fedgwc.engines.settings import cores, device_of
from fedgwc.runs.experiment import Experiment, differing
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import Result, run
from fedgwc.runs.processes import Died, in_processes
from fedgwc.runs.progress import watcher
from fedgwc.runs.together import run_together

INTERRUPTED = "interrupted"
RUNS_PER_STACK = 8  # runs that train together on a GPU

Job = tuple[str, Experiment]  # a run's folder below the common one, and what it does


@dataclass(frozen=True)
class JobResult:
    name: str
    problem: str = ""  # why it could not be made; INTERRUPTED: it has saved and stopped
    last: dict[str, Any] = field(default_factory=dict)  # its last metrics


def run_all(runs: Sequence[Job], folder: Path, jobs: int = 0) -> Generator[JobResult, None, None]:
    """Do every run into `folder`/NAME, yielding each as it finishes.

    `jobs` at a time, 0: as the machine suggests.

    Whoever stops before the end closes it, so that runs in progress save and stop.
    """
    to_do = []
    for name, job in runs:
        if is_finished(folder / name, job):
            yield JobResult(name, last=RunFolder(folder / name).metrics()[-1])
        else:
            to_do.append((name, job))
    if to_do:
        on_gpu = device_of(to_do[0][1].engine).type == "cuda"
        yield from (_stacked_on_gpu if on_gpu else _in_processes)(to_do, folder, jobs)


def is_finished(path: Path, job: Experiment) -> bool:
    """Tell whether the very same run is there and finished.

    One with other settings is not, and `run` will say so.
    """
    if not (path / "per_client.npz").is_file():  # the last file that a run writes
        return False
    saved, asked = RunFolder(path).config()["experiment"], job.to_json()
    return not differing(saved, asked) and _end(saved) == _end(asked)


def _end(tables: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return what ends an experiment: its rounds, and the budgets that are set."""
    budget = tables.get("evaluate", {}).get("budget", {})
    return tables.get("rounds"), {measure: limit for measure, limit in budget.items() if limit is not None}


def _in_processes(runs: list[Job], folder: Path, jobs: int) -> Iterator[JobResult]:
    n_jobs = min(jobs or cores(), len(runs))
    if n_jobs == 1:
        yield from (_run_one(name, job, folder, watch=True) for name, job in runs)
        return
    name = ""
    try:
        for (name, *_), result in in_processes(_run_one, deque((name, job, folder) for name, job in runs), n_jobs):
            yield _died(name, result) if isinstance(result, Died) else result
    except KeyboardInterrupt:
        yield JobResult(name, INTERRUPTED)


def _died(name: str, end: Died) -> JobResult:
    """Describe a run whose process has died."""
    return JobResult(name, INTERRUPTED if end.was_asked else end.what(name))


def _stacked_on_gpu(runs: list[Job], folder: Path, jobs: int) -> Iterator[JobResult]:
    """Do runs of one kind together on the GPU's stacked axis."""
    kinds: dict[str, list[Job]] = {}
    for name, job in runs:
        kinds.setdefault(repr((job.tables["data"], job.tables["model"], job.local, job.engine)), []).append((name, job))
    for alike in kinds.values():
        for at in range(0, len(alike), jobs or RUNS_PER_STACK):
            some = alike[at : at + (jobs or RUNS_PER_STACK)]
            try:
                results = run_together([(job, folder / name) for name, job in some], progress=watcher())
            except InputError:  # of one of them, perhaps; each alone tells which
                yield from (_run_one(name, job, folder, watch=True) for name, job in some)
            else:
                yield from (_result_of(name, result) for (name, _), result in zip(some, results, strict=True))


def _run_one(name: str, job: Experiment, folder: Path, watch: bool = False) -> JobResult:
    try:
        path = folder / name
        return _result_of(name, run(job, path, resume=RunFolder(path).has_run(), progress=watcher() if watch else None))
    except InputError as error:
        return JobResult(name, str(error))
    except OSError as error:
        return JobResult(name, os_error_text(error))
    except KeyboardInterrupt:
        return JobResult(name, INTERRUPTED)
    except Exception as error:  # of somebody's own algorithm, perhaps: the other runs go on
        traceback.print_exc()
        return JobResult(name, f"{type(error).__name__}: {error}".splitlines()[0])


def _result_of(name: str, result: Result) -> JobResult:
    return JobResult(name, last=result.last) if result.finished else JobResult(name, INTERRUPTED)
