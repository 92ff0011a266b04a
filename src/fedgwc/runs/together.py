"""Several runs on one engine, a thread each."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from fedgwc.core.errors import InputError
from fedgwc.engines.pool import SharedEngine
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.interrupt import PoliteInterrupt
from fedgwc.runs.loop import Result, prepare
from fedgwc.runs.progress import MessagesOnly, Silent, Watcher


def run_together(jobs: Sequence[tuple[Experiment, Path]], *, progress: Watcher | None = None) -> list[Result]:
    """Run several experiments on one engine (see `engines.pool`).

    Faster on a GPU than one after the other.

    They must share model, local training and kind of data; seeds and algorithms are free. Each folder ends as `run` would
    have left it, up to rounding, and one that already holds a run is resumed.
    """
    if not jobs:
        return []
    runs = [prepare(job, path, RunFolder(path).has_run()) for job, path in jobs]
    # What was asked for: a run that has begun says what its engine chose, a new one does not know yet.
    kinds = [(job.to_json()["model"], job.local, job.engine, r.job.engine.dtype) for (job, _), r in zip(jobs, runs, strict=True)]
    if any(kind != kinds[0] for kind in kinds):
        raise InputError("runs can only run together with the same model, local training and engine; run these one by one")
    pool = SharedEngine([r.site.federation for r in runs], runs[0].job.simulator)
    watchers = [progress or Silent(), *[MessagesOnly(progress) if progress else Silent() for _ in runs[1:]]]
    results: list[Result | BaseException] = [KeyboardInterrupt()] * len(runs)

    def go(i: int) -> None:
        try:
            runs[i].site.use(pool.members[i])
            results[i] = runs[i].go(watchers[i], nullcontext(interrupt))
        except BaseException as error:
            results[i] = error
        finally:
            pool.members[i].leave()

    with PoliteInterrupt() as interrupt, _quick_turns():
        threads = [threading.Thread(target=go, args=(i,), daemon=True) for i in range(len(runs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for failed in (r for r in results if isinstance(r, BaseException)):
        raise failed
    return [r for r in results if isinstance(r, Result)]


@contextmanager
def _quick_turns() -> Iterator[None]:
    """Let threads take turns more often.

    Python lets a thread compute for 5 ms before another may. So long a card would wait for its next round.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
