"""One client's step, stacked for a whole cohort.

It is derived once per shape and not at every step.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from fedgwc.engines.recorded import replayable
from fedgwc.training.step import Step

MOST_SHAPES = 64  # programs kept; cohorts come in few shapes, so this only bounds a pathological run
ATEN = torch.ops.aten
# A slice that leaves nothing out keeps the order too: nobody's step is negative.
SAME_IF_SHAPED_ALIKE = (ATEN.view.default, ATEN._unsafe_view.default, ATEN.expand.default, ATEN.slice.Tensor)


class StackedStep:
    """`vmap(step)`, recorded once per shape.

    A recording is a flat list of tensor operations.

    Under vmap and grad every operation passes several Python-level interpreters. Recording the operations once (`make_fx`)
    and replaying them from TorchScript's executor leaves only the operations: on the digits MLP a step of 10 clients took
    1.06 ms under eager vmap, 0.49 ms as the recorded graph and 0.15 ms replayed, after 0.1 s of recording.
    """

    def __init__(self, step: Step) -> None:
        self._vmapped = torch.func.vmap(step, randomness="different")
        self._programs: OrderedDict[tuple[Any, ...], Step] = OrderedDict()

    def __call__(self, *args: Tensor) -> tuple[Tensor, ...]:
        key = tuple((tuple(int(n) for n in a.shape), a.dtype) for a in args)  # int: under a recorder they are tensors
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = recorded_stack(self._vmapped, args)
            if len(self._programs) > MOST_SHAPES:
                self._programs.popitem(last=False)
        with torch.no_grad():
            return program(*args)


def recorded_stack(function: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Record a function that uses vmap or grad.

    For arguments like these; the recording contains neither, nor Python code.
    """
    # Copies: in the first step theta and the anchor are one tensor, and the recorder would take them for one input.
    graph = make_fx(lambda *a: function(*a))(*(a.clone() for a in args))  # a lambda, because a method's `self` would count
    _remove_idle_operations(graph)
    return replayable(lambda *a: graph(*a), args)  # a function, because a module could not be called in another recording


def _remove_idle_operations(graph: GraphModule) -> None:
    """Remove operations that change nothing.

    A view in the same shape, a transpose and back, times 1.
    """
    for node in graph.graph.nodes:
        if node.target in SAME_IF_SHAPED_ALIKE or (node.target == ATEN.mul.Tensor and _is_one(node.args[1])):
            before = node.args[0]
            if getattr(before.meta.get("val"), "shape", None) == node.meta["val"].shape:
                node.replace_all_uses_with(before)
        elif node.target == ATEN.transpose.int:
            before, *axes = node.args
            if before.target == ATEN.transpose.int and list(before.args[1:]) == axes:
                node.replace_all_uses_with(before.args[0])
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _is_one(node: Any) -> bool:
    """Recognise ones in any shape.

    Such as the gradient of a loss with respect to itself.
    """
    while getattr(node, "target", None) in (ATEN.view.default, ATEN.expand.default, ATEN.unsqueeze.default):
        node = node.args[0]
    return getattr(node, "target", None) == ATEN.ones_like.default
