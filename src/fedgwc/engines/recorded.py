"""Recorded TorchScript programs: on a CPU what `captured` is on CUDA."""

from __future__ import annotations

import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from fedgwc.engines.captured import Program

AFTER = 20  # plain calls with one key before it is recorded, since recording takes as long as some hundred calls save; >= 1


class Recorded:
    """A recorder of TorchScript programs, one per key.

    It runs `program(*inputs)` and records a program that recurs often; inputs of one key have the same shapes.

    A recording holds tensor operations only: what a program reads from elsewhere must not change between calls.
    """

    def __init__(self, most: int = 64, record: Callable[[Program, tuple[Tensor, ...]], Program] | None = None) -> None:
        self._record = record or replayable
        self._recordings: OrderedDict[Hashable, Program] = OrderedDict()
        self._calls: Counter[Hashable] = Counter()
        self._most = most

    def __call__(self, key: Hashable, program: Program, *inputs: Tensor) -> tuple[Tensor, ...]:
        recording = self._recordings.get(key)
        if recording is None:
            self._calls[key] += 1
            if self._calls[key] <= AFTER:
                return program(*inputs)
            recording = self._recordings[key] = self._record(program, inputs)
            if len(self._recordings) > self._most:
                self._recordings.popitem(last=False)
        self._recordings.move_to_end(key)
        with torch.inference_mode():  # a sixth of a small round is autograd looking whether it is wanted
            outputs = recording(*inputs)
        return tuple(t.clone() for t in outputs)  # ordinary tensors


def replayable(program: Callable[..., Any], inputs: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Record `program` without its Python, for inputs like these.

    Where TorchScript cannot record it, `program` itself.
    """
    # Copies: inputs that are one tensor here would be taken for one input.
    copies = tuple(t.clone() for t in inputs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tracing warns about constants, which is what shapes are here
            return torch.jit.trace(program, copies, check_trace=False)  # type: ignore[no-any-return]
    except RuntimeError:  # TorchScript does not know every operation's arguments (the gradient of a convolution)
        return program
