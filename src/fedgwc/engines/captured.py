"""CUDA graphs: thousands of kernels launched as one."""

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
    """A recorder of CUDA graphs, one per key.

    It runs `program(*inputs)` on a card; inputs of one key have the same shapes.

    What may change between calls is an input; all else that a program depends on is fixed for good or part of its key.
    The card is the current one whenever this is called (`settings.running`).

    All recordings share one memory pool, so memory is bounded by the largest of them. Outputs are therefore only valid
    until the next call: copy what must last.
    """

    def __init__(self, device: torch.device, most: int = 16) -> None:
        self._recordings: OrderedDict[Hashable, _Recording] = OrderedDict()
        self._device, self._pool = device, torch.cuda.graph_pool_handle()
        # One for all recordings, since a pool keeps memory by stream; PyTorch's default belongs to the first card recorded on.
        self._stream = torch.cuda.Stream(device)
        self._most = most

    def __call__(self, key: Hashable, program: Program, *inputs: Tensor) -> tuple[Tensor, ...]:
        recording = self._recordings.get(key)
        if recording is None:
            recording = self._recordings[key] = self._record(program, inputs)
            if len(self._recordings) > self._most:
                self._recordings.popitem(last=False)
        self._recordings.move_to_end(key)
        for fixed, new in zip(recording.inputs, inputs, strict=True):
            fixed.copy_(new, non_blocking=True)
        recording.graph.replay()
        return recording.outputs

    def _record(self, program: Program, inputs: tuple[Tensor, ...]) -> _Recording:
        fixed_inputs = tuple(t.clone() for t in inputs)
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):  # kernels are compiled and libraries set up before anything is recorded
            for _ in range(2):
                program(*fixed_inputs)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # thread_local: another run's thread may use the card meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            outputs = program(*fixed_inputs)
        return _Recording(graph, fixed_inputs, outputs)
