"""Execution of a plan.

Finished runs are not done again, interrupted ones go on, impossible ones do not stop the rest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from fedgwc.io.atomic import write_atomically
from fedgwc.reproduce.outcome import PROVENANCE
from fedgwc.reproduce.plan import Planned
from fedgwc.runs.batch import INTERRUPTED, is_finished, run_all


def execute(runs: Sequence[Planned], folder: Path, provenance: Mapping[str, Any], jobs: int = 0) -> dict[str, str]:
    """Do the runs into `folder`/NAME.

    Returns why a run could not be made, by its name.
    """
    to_do = [(r.name, r.job) for r in runs if not is_finished(folder / r.name, r.job)]
    failed: dict[str, str] = {}
    with closing(run_all(to_do, folder, jobs)) as all_done:
        for i, done in enumerate(all_done, 1):
            if done.problem == INTERRUPTED:
                raise KeyboardInterrupt  # the run itself has saved and stopped
            status = "done" if not done.problem else "the same" if done.problem in failed.values() else done.problem
            print(f"{i}/{len(to_do)} {done.name}: {status}", file=sys.stderr, flush=True)
            if done.problem:
                failed[done.name] = done.problem
            else:
                _sign(folder / done.name / PROVENANCE, provenance)
    return failed


def _sign(path: Path, provenance: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(provenance, indent=2, ensure_ascii=False).encode())
