"""Worker processes that live as long as the run.

Each trains one client at a time.

They are forked, so they see the federation without copying it; models travel through a slot of shared memory per worker,
[1, D], or [3, D] once a round brings an anchor or a mask.
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
from fedgwc.engines.round_inputs import RoundInputs
from fedgwc.training.flat_model import FlatModel

log = logging.getLogger("fedgwc")
Train = Callable[[int, int, Tensor, RoundInputs], tuple[Tensor, Tensor]]
Job = tuple[int, int, int]  # a client, its key, and the row of `models` it starts from


class Workers:
    """Processes that train several clients at a time.

    Calls `train(client, key, start, inputs)` for each client.
    """

    def __init__(self, n: int, train: Train, model: FlatModel) -> None:
        self._n, self._train, self._model = n, train, model
        self._pipes: list[Connection] = []
        self._slots: list[Tensor] = []
        self._rows = 1  # of a slot
        self._owner = 0

    def __call__(self, jobs: list[Job], models: Tensor, inputs: RoundInputs) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield (position in `jobs`, model, losses) as they come; take each before the next.

        A client whose worker died has NaN.
        """
        rows = 1 if inputs.anchors is None and inputs.moves is None else 3
        if rows > self._rows:
            self._stop_all()
            self._rows = rows
        if self._owner != os.getpid():  # the first call, or a fork of the process that had workers
            self._start_all()
        return self._results(jobs, models, inputs)

    def _results(self, jobs: list[Job], models: Tensor, inputs: RoundInputs) -> Iterator[tuple[int, Tensor, Tensor]]:
        waiting = list(range(len(jobs)))[::-1]
        busy: dict[Connection, tuple[int, int]] = {}  # pipe -> (worker, position)

        def give(worker: int) -> None:
            if waiting:
                position = waiting.pop()
                client, key, model = jobs[position]
                order = _write_slot(self._slots[worker], models[model], inputs.row(model))
                self._pipes[worker].send((client, key, order))
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
            return self._slots[worker][0], torch.tensor(answer, dtype=self._model.dtype)
        except (EOFError, ConnectionResetError):
            log.warning("a worker process died; its client counts as failed, and another worker takes its place")
            self._pipes[worker], self._slots[worker] = self._start()
            return torch.full_like(self._slots[worker][0], torch.nan), torch.full((1,), torch.nan, dtype=self._model.dtype)

    def _start_all(self) -> None:
        started = [self._start() for _ in range(self._n)]
        self._pipes, self._slots = [p for p, _ in started], [s for _, s in started]
        self._owner = os.getpid()
        # Before multiprocessing ends what is left by SIGTERM, which they do not heed.
        Finalize(self, _close, (self._pipes,), exitpriority=0)

    def _stop_all(self) -> None:
        """Close all pipes, which ends the workers.

        The next call starts others.
        """
        _close(self._pipes)
        self._owner = 0

    def _start(self) -> tuple[Connection, Tensor]:
        if torch.cuda.is_initialized():
            raise InputError(
                "this process has used a GPU, and worker processes forked from it could not train; "
                "use how='stacked' or how='one-by-one', or start a new process"
            )
        slot = torch.empty(self._rows, self._model.size, dtype=self._model.dtype).share_memory_()
        ours, theirs = multiprocessing.Pipe()
        context: Any = multiprocessing.get_context("fork")
        process = context.Process(target=_serve, args=(theirs, ours, slot, self._train), daemon=True)
        process.start()
        theirs.close()
        return ours, slot


Order = tuple[float | None, bool, bool]  # a round's learning rate, and whether the slot holds an anchor and a mask


def _write_slot(slot: Tensor, start: Tensor, inputs: RoundInputs) -> Order:
    """Write what a client needs into a worker's slot."""
    slot[0].copy_(start)
    for row, given in ((1, inputs.anchors), (2, inputs.moves)):
        if given is not None:
            slot[row].copy_(given[0])
    return None if inputs.rates is None else inputs.rates.item(), inputs.anchors is not None, inputs.moves is not None


def _read_slot(slot: Tensor, order: Order) -> tuple[Tensor, RoundInputs]:
    """Read a client's inputs from a worker's slot.

    Copies, because the answer is written into the slot.
    """
    rate, anchored, masked = order
    return slot[0].clone(), RoundInputs(
        None if rate is None else slot.new_full((1, 1), rate),
        slot[1:2].clone() if anchored else None,
        slot[2:3] != 0 if masked else None,
    )


def _close(pipes: list[Connection]) -> None:
    for pipe in pipes:
        pipe.close()


def _serve(pipe: Connection, parents_end: Connection, slot: Tensor, train: Train) -> None:
    """Train one client after the other until the parent is gone."""
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):  # the parent's to handle: it wants the round's answers before it saves
        signal.signal(number, signal.SIG_IGN)
    parents_end.close()
    torch.set_num_threads(1)
    _keep_freed_memory()
    while True:
        try:
            client, key, order = pipe.recv()
        except EOFError:
            os._exit(0)
        answer = _answer(client, key, order, slot, train)
        try:
            pipe.send(answer)
        except BrokenPipeError:
            os._exit(0)


def _answer(client: int, key: int, order: Order, slot: Tensor, train: Train) -> list[float] | InputError:
    """Return the losses, with the model in the slot.

    A user's mistake is returned too, and the parent raises it where the user looks.
    """
    try:
        theta, losses = train(client, key, *_read_slot(slot, order))
    except InputError as error:
        return error
    slot[0].copy_(theta)
    found: list[float] = losses.tolist()
    return found


def _keep_freed_memory() -> None:
    """Keep the memory that a step frees for the next.

    Given back to the system in between, it costs a fifth of a round.
    """
    trim_threshold, mmap_max = -1, -4  # the names of malloc.h; a C library without `mallopt` has no such habit
    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)
    mallopt(mmap_max, 0)  # all sizes come from the heap
    mallopt(trim_threshold, -1)  # whose free end stays
