"""Worker processes that do one job at a time and end with their parent.

They never see Ctrl-C, which a terminal sends to every process: not while they load, when it would end in a traceback, and not
later, when the parent asks them by SIGTERM. One that is loading or idle is ended by that; a run finishes its round and saves.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

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
