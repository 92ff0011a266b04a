"""Worker processes that live as long as the run, one client at a time each.

They are forked, so they see the federation without copying it; models travel through a slot of shared memory per worker.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Any

import torch
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.training.flat_model import FlatModel

log = logging.getLogger("fedgwc")
Train = Callable[[int, int, Tensor], tuple[Tensor, Tensor]]
Job = tuple[int, int, int]  # a client, its key, and the row of `models` it starts from


class Workers:
    """`train(client, key, start)` for many clients, several at a time."""

    def __init__(self, n: int, train: Train, model: FlatModel) -> None:
        self._n, self._train, self._model = n, train, model
        self._pipes: list[Connection] = []
        self._slots: list[Tensor] = []
        self._owner = 0

    def __call__(self, work: list[Job], models: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """(position in `work`, model, losses) as they come; a client whose worker died has NaN. Take each before the next."""
        if self._owner != os.getpid():  # the first call, or a fork of the process that had workers
            self._start_all()
        return self._results(work, models)

    def _results(self, work: list[Job], models: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        waiting = list(range(len(work)))[::-1]
        busy: dict[Connection, tuple[int, int]] = {}  # pipe -> (worker, position)

        def give(worker: int) -> None:
            if waiting:
                position = waiting.pop()
                client, key, model = work[position]
                self._slots[worker].copy_(models[model])
                self._pipes[worker].send((client, key))
                busy[self._pipes[worker]] = (worker, position)

        try:
            for worker in range(self._n):
                give(worker)
            while busy:
                for pipe in wait(list(busy)):
                    assert isinstance(pipe, Connection)  # noqa: S101 (for the type checker)
                    worker, position = busy.pop(pipe)
                    yield position, *self._take(worker, pipe)
                    give(worker)
        finally:
            if busy:  # something went wrong, and answers are under way that nobody will wait for
                self._stop_all()

    def _take(self, worker: int, pipe: Connection) -> tuple[Tensor, Tensor]:
        try:
            answer = pipe.recv()
            if isinstance(answer, InputError):
                raise answer
            return self._slots[worker], torch.tensor(answer, dtype=self._model.dtype)
        except (EOFError, ConnectionResetError):
            log.warning("a worker process died; its client counts as failed, and another worker takes its place")
            self._pipes[worker], self._slots[worker] = self._start()
            return torch.full_like(self._slots[worker], torch.nan), torch.full((1,), torch.nan, dtype=self._model.dtype)

    def _start_all(self) -> None:
        started = [self._start() for _ in range(self._n)]
        self._pipes, self._slots = [p for p, _ in started], [s for _, s in started]
        self._owner = os.getpid()
        # Before multiprocessing ends what is left by SIGTERM, which they do not heed.
        Finalize(self, _close, (self._pipes,), exitpriority=0)

    def _stop_all(self) -> None:
        """Each ends when it finds its pipe closed; the next call starts others."""
        _close(self._pipes)
        self._owner = 0

    def _start(self) -> tuple[Connection, Tensor]:
        slot = torch.empty(self._model.size, dtype=self._model.dtype).share_memory_()
        ours, theirs = multiprocessing.Pipe()
        context: Any = multiprocessing.get_context("fork")
        process = context.Process(target=_serve, args=(theirs, ours, slot, self._train), daemon=True)
        process.start()
        theirs.close()
        return ours, slot


def _close(pipes: list[Connection]) -> None:
    for pipe in pipes:
        pipe.close()


def _serve(pipe: Connection, parents_end: Connection, slot: Tensor, train: Train) -> None:
    """One worker: until the parent is gone."""
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):  # the parent's to handle: it wants the round's answers before it saves
        signal.signal(number, signal.SIG_IGN)
    parents_end.close()
    torch.set_num_threads(1)
    _keep_freed_memory()
    while True:
        try:
            client, key = pipe.recv()
        except EOFError:
            os._exit(0)
        answer = _answer(client, key, slot, train)
        try:
            pipe.send(answer)
        except BrokenPipeError:
            os._exit(0)


def _answer(client: int, key: int, slot: Tensor, train: Train) -> list[float] | InputError:
    """The losses, and the model in the slot; a mistake of the user's is told by the parent, where the user looks."""
    try:
        theta, losses = train(client, key, slot.clone())
    except InputError as error:
        return error
    slot.copy_(theta)
    found: list[float] = losses.tolist()
    return found


def _keep_freed_memory() -> None:
    """Every step asks for the same tens of megabytes; given back to the system in between, they cost a fifth of a round."""
    trim_threshold, mmap_max = -1, -4  # the names of malloc.h; a C library without `mallopt` has no such habit
    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)
    mallopt(mmap_max, 0)  # all sizes come from the heap
    mallopt(trim_threshold, -1)  # whose free end stays
