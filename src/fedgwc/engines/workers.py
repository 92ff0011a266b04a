"""Worker processes that live as long as the run, one client at a time each.

They are forked, so they see the federation without copying it; models travel through a slot of shared memory per worker.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import Tensor

from fedgwc.local import FlatModel

log = logging.getLogger("fedgwc")
Train = Callable[[int, int, Tensor], tuple[Tensor, Tensor]]


class Workers:
    """`train(client, key, start)` for many clients, several at a time."""

    def __init__(self, n: int, train: Train, model: FlatModel) -> None:
        self._n, self._train, self._model = n, train, model
        self._pipes: list[Connection] = []
        self._slots: list[Tensor] = []
        self._owner = 0

    def __call__(self, clients: list[int], keys: list[int], start: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Results in the order of the clients; a client whose worker died has NaN."""
        if self._owner != os.getpid():  # the first call, or a fork of the process that had workers
            self._start_all()
        results: dict[int, tuple[Tensor, Tensor]] = {}
        waiting = list(range(len(clients)))[::-1]
        busy: dict[Connection, tuple[int, int]] = {}  # pipe -> (worker, position)
        for worker in range(self._n):
            self._give(worker, waiting, busy, clients, keys, start)
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)  # noqa: S101 (for the type checker)
                worker, position = busy.pop(pipe)
                results[position] = self._take(worker, pipe, start)
                self._give(worker, waiting, busy, clients, keys, start)
        return (results[i] for i in range(len(clients)))

    def _give(
        self,
        worker: int,
        waiting: list[int],
        busy: dict[Connection, tuple[int, int]],
        clients: list[int],
        keys: list[int],
        start: Tensor,
    ) -> None:
        if waiting:
            position = waiting.pop()
            self._slots[worker].copy_(start[position])
            self._pipes[worker].send((clients[position], keys[position]))
            busy[self._pipes[worker]] = (worker, position)

    def _take(self, worker: int, pipe: Connection, start: Tensor) -> tuple[Tensor, Tensor]:
        try:
            losses = torch.tensor(pipe.recv(), dtype=start.dtype)
        except (EOFError, ConnectionResetError):
            log.warning("a worker process died; its client counts as failed, and another worker takes its place")
            self._pipes[worker], self._slots[worker] = self._start()
            return torch.full((start.shape[1],), torch.nan, dtype=start.dtype), torch.full((1,), torch.nan, dtype=start.dtype)
        return self._slots[worker].clone(), losses

    def _start_all(self) -> None:
        started = [self._start() for _ in range(self._n)]
        self._pipes, self._slots = [p for p, _ in started], [s for _, s in started]
        self._owner = os.getpid()

    def _start(self) -> tuple[Connection, Tensor]:
        slot = torch.empty(self._model.size, dtype=self._model.dtype).share_memory_()
        ours, theirs = multiprocessing.Pipe()
        context: Any = multiprocessing.get_context("fork")
        process = context.Process(target=_serve, args=(theirs, ours, slot, self._train), daemon=True)
        process.start()
        theirs.close()
        return ours, slot


def _serve(pipe: Connection, parents_end: Connection, slot: Tensor, train: Train) -> None:
    """One worker: until the parent is gone."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    parents_end.close()
    torch.set_num_threads(1)
    while True:
        try:
            client, key = pipe.recv()
        except EOFError:
            os._exit(0)
        theta, losses = train(client, key, slot.clone())
        slot.copy_(theta)
        pipe.send(losses.tolist())
