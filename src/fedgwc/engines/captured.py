"""Programs recorded as CUDA graphs: thousands of kernels launched as one, with nothing for Python to do in between."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

Program = Callable[..., tuple[Tensor, ...]]


@dataclass
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class Captured:
    """Runs `program(*inputs)`, recorded once per key; inputs of one key have the same shapes.

    All recordings share one memory pool, so memory is bounded by the largest of them. Outputs are therefore only valid
    until the next call: copy what must last.
    """

    def __init__(self, most: int = 16) -> None:
        self._recordings: OrderedDict[Hashable, _Recording] = OrderedDict()
        self._pool = torch.cuda.graph_pool_handle()
        self._most = most

    def __call__(self, key: Hashable, program: Program, *inputs: Tensor) -> tuple[Tensor, ...]:
        recording = self._recordings.get(key)
        if recording is None:
            recording = self._recordings[key] = self._record(program, inputs)
            if len(self._recordings) > self._most:
                self._recordings.popitem(last=False)
        self._recordings.move_to_end(key)
        for held, given in zip(recording.inputs, inputs, strict=True):
            held.copy_(given, non_blocking=True)
        recording.graph.replay()
        return recording.outputs

    def _record(self, program: Program, inputs: tuple[Tensor, ...]) -> _Recording:
        held = tuple(t.clone() for t in inputs)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # kernels are compiled and libraries set up before anything is recorded
            for _ in range(2):
                program(*held)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # thread_local: another run's thread may use the card meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            outputs = program(*held)
        return _Recording(graph, held, outputs)
