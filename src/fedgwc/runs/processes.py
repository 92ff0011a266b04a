"""Worker processes that do one job at a time and end with their parent.

They never see Ctrl-C, which a terminal sends to every process: not while they load, when it would end in a traceback, and not
later, when the parent asks them by SIGTERM. One that is loading or idle is ended by that; a run finishes its round and saves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from fedgwc.runs.interrupt import PoliteInterrupt
from fedgwc.runs.plugins import use

POLL_SECONDS = 0.2  # seconds between two looks at whether Ctrl-C was pressed, which does not end a wait by itself


@dataclass(frozen=True)
class Worker:
    process: SpawnProcess
    pipe: Connection

    def send(self, *job: Any) -> None:
        self.pipe.send(job)

    def receive(self) -> Any:
        """Return its job's result.

        EOFError: it has ended.
        """
        try:
            return self.pipe.recv()
        except ConnectionResetError:
            raise EOFError from None

    def exit_code(self) -> int:
        """Return the exit code of an ended worker; -9 is signal 9."""
        self.process.join()
        return self.process.exitcode or 0


@dataclass(frozen=True)
class Died:
    """The end of a worker in the midst of its job."""

    exit_code: int  # -9 is signal 9

    def what(self, name: str) -> str:
        """Say how the process of a job ended, and what may help."""
        if self.exit_code < 0:
            how = f"signal {-self.exit_code}); if memory ran out, try fewer runs at a time, --jobs 1"
        else:
            how = f"exit code {self.exit_code}); what it said last stands above"
        return f"the process of {name} ended ({how}"

    @property
    def was_asked(self) -> bool:
        """Tell whether somebody asked it to end."""
        return self.exit_code == -signal.SIGTERM


Job = tuple[Any, ...]


def in_processes(do: Callable[..., Any], jobs: deque[Job], n_processes: int) -> Generator[tuple[Job, Any], None, None]:
    """Yield each job with its result or `Died`, as they finish.

    Whoever takes a result may append jobs. After Ctrl-C no job begins; those in progress save, and come to nothing.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the workers: one core each, and nobody spins on another's
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    idle, busy = list[Worker](), dict[Worker, Job]()
    with PoliteInterrupt() as interrupt, worker_processes(do) as start:
        while (jobs or busy) and not interrupt.asked:
            while jobs and len(busy) < n_processes:
                worker = idle.pop() if idle else start()
                busy[worker] = jobs.popleft()
                worker.send(*busy[worker])
            for worker in with_results(list(busy)):
                job = busy.pop(worker)
                try:
                    result = worker.receive()
                    idle.append(worker)
                except EOFError:  # another takes its place
                    result = Died(worker.exit_code())
                yield job, result
        if interrupt.asked:
            raise KeyboardInterrupt


@contextmanager
def worker_processes(do: Callable[..., Any]) -> Iterator[Callable[[], Worker]]:
    """Yield a function that starts a worker process calling `do`.

    In the end all are asked to stop, and waited for.
    """
    workers: list[Worker] = []

    def start() -> Worker:
        workers.append(_start(do))
        return workers[-1]

    try:
        yield start
    finally:
        _stop(workers)


def with_results(workers: Sequence[Worker]) -> list[Worker]:
    """Return the workers with a result, waiting a moment for one."""
    pipes = wait([w.pipe for w in workers], POLL_SECONDS)
    return [w for w in workers if w.pipe in pipes]


def _start(do: Callable[..., Any]) -> Worker:
    ours, theirs = multiprocessing.Pipe()
    resource_tracker.ensure_running()  # it would be started below, and lets Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which a new process inherits
    try:
        process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, do))
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return Worker(process, ours)


def _stop(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.process.terminate()
    try:
        for worker in workers:
            worker.process.join()
    except KeyboardInterrupt:  # a second Ctrl-C
        for worker in workers:
            worker.process.kill()
        raise


def _serve(pipe: Connection, do: Callable[..., Any]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use()  # what the parent was told of, before a job names it
    while True:
        pipe.send(do(*pipe.recv()))


def _end_with_parent() -> None:
    """End this process when its parent ends.

    Also if the parent was killed and could not ask.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        signal.raise_signal(signal.SIGTERM)
