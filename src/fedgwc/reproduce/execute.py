"""Doing the runs of a plan: finished ones are not done again, interrupted ones go on, impossible ones do not stop the rest."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fedgwc.codec import write_atomically
from fedgwc.engines.settings import cores, device_of
from fedgwc.errors import InputError
from fedgwc.experiment import Experiment
from fedgwc.progress import watcher
from fedgwc.record import RunFolder
from fedgwc.reproduce.outcome import PROVENANCE
from fedgwc.reproduce.plan import Planned
from fedgwc.runner import run

INTERRUPTED = "interrupted"


def execute(runs: Sequence[Planned], folder: Path, provenance: Mapping[str, Any], jobs: int = 0) -> dict[str, str]:
    """Do the runs into `folder`/NAME; why a run could not be made, by its name."""
    to_do = [r for r in runs if not is_finished(folder / r.name, r.job)]
    failed: dict[str, str] = {}
    for i, (planned, problem) in enumerate(_results(to_do, folder, jobs), 1):
        if problem == INTERRUPTED:
            raise KeyboardInterrupt  # the run itself has saved and stopped
        said = "done" if not problem else "the same" if problem in failed.values() else problem
        print(f"{i}/{len(to_do)} {planned.name}: {said}", file=sys.stderr, flush=True)
        if problem:
            failed[planned.name] = problem
        else:
            _sign(folder / planned.name / PROVENANCE, provenance)
    return failed


def _results(runs: list[Planned], folder: Path, jobs: int) -> Iterator[tuple[Planned, str]]:
    on_cpu = not runs or device_of(runs[0].job.engine).type == "cpu"
    n_jobs = min(jobs or (cores() if on_cpu else 1), len(runs))
    if n_jobs <= 1:
        yield from ((r, _one(r.job, folder / r.name, watch=True)) for r in runs)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the workers: one core each, and nobody spins on another's
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    left = iter(runs)
    with ProcessPoolExecutor(n_jobs, get_context("spawn")) as pool:
        going: dict[Future[str], Planned] = {}
        while True:
            # No more at a time than there are workers: what a pool has taken in cannot be called back after Ctrl-C.
            for r in islice(left, n_jobs - len(going)):
                going[pool.submit(_one, r.job, folder / r.name)] = r
            if not going:
                return
            for future in wait(going, return_when=FIRST_COMPLETED).done:
                yield going.pop(future), future.result()


def _one(job: Experiment, path: Path, watch: bool = False) -> str:
    """One run, resumed where it was interrupted; empty: it is finished."""
    try:
        result = run(job, path, resume=RunFolder(path).has_run(), progress=watcher() if watch else None)
    except InputError as error:
        return str(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    return "" if result.finished else INTERRUPTED


def is_finished(path: Path, job: Experiment) -> bool:
    """Whether the very same run is there, whole. One with other settings is not, and `run` will say so."""
    if not (path / "per_client.npz").is_file():  # the last file that a run writes
        return False
    saved = RunFolder(path).config()["experiment"]
    asked = json.loads(json.dumps(job.to_json()))
    return all(saved.get(k) == v for k, v in asked.items() if k not in ("engine", "evaluate"))


def _sign(path: Path, provenance: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(provenance, indent=2, ensure_ascii=False).encode())
