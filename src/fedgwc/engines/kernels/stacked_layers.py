"""Fused layers for stacked clients on a GPU.

`fused(module)` puts them in the place of the layers they stand for, in every `nn.Sequential`: a convolution with the 2x2
pooling (and ReLU) that follows it, and a dense layer with its ReLU. Parameters keep their names and order.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

Pair = tuple[int, int]


def fused(module: nn.Module, precision: str) -> nn.Module:
    """Copy a module with fused layers, for vmap only.

    `precision` is "ieee", "tf32" or "bf16".
    """
    twin = copy.deepcopy(module)
    for sequence in [m for m in twin.modules() if type(m) is nn.Sequential]:
        names = list(sequence._modules)
        for at, name in enumerate(names):
            run = [sequence._modules[other] for other in names[at : at + 3]]
            layer, used = _together(run, precision)
            if layer is not None:
                sequence._modules[name] = layer
                sequence._modules.update((other, nn.Identity()) for other in names[at + 1 : at + used])
    return twin


def _together(run: Sequence[nn.Module | None], precision: str) -> tuple[nn.Module | None, int]:
    """Fuse the first layers of `run` into one, and count them."""
    first, rest = run[0], run[1:]
    if type(first) is nn.Linear:
        relu = bool(rest) and type(rest[0]) is nn.ReLU
        return Dense(first, relu, precision), 1 + relu
    if type(first) is nn.Conv2d and _is_plain(first):
        # ReLU keeps order, so it may stand before pooling or after it.
        if len(rest) == 2 and any(_is_square(a) and type(b) is nn.ReLU for a, b in (rest, rest[::-1])):
            return Block(first, True, precision), 3
        if rest and _is_square(rest[0]):
            return Block(first, False, precision), 2
    return None, 1


def _is_plain(c: nn.Conv2d) -> bool:
    if c.stride != (1, 1) or c.dilation != (1, 1) or c.groups != 1 or c.padding_mode != "zeros" or isinstance(c.padding, str):
        return False
    return all(p < k for p, k in zip(c.padding, c.kernel_size, strict=True))


def _is_square(p: nn.Module | None) -> bool:
    """Recognise 2x2 squares side by side, the pooling of nearly every small network."""
    if type(p) is not nn.MaxPool2d or p.ceil_mode or p.return_indices:
        return False
    settings = [v if isinstance(v, tuple) else (v, v) for v in (p.kernel_size, p.stride, p.padding, p.dilation)]
    return settings == [(2, 2), (2, 2), (0, 0), (1, 1)]


class Block(nn.Module):
    """A convolution, 2x2 max-pooling and, perhaps, ReLU."""

    def __init__(self, convolution: nn.Conv2d, relu: bool, precision: str) -> None:
        super().__init__()
        self.weight, self.bias = convolution.weight, convolution.bias
        self.padding, self.relu, self.precision = convolution.padding, relu, precision

    def forward(self, x: Tensor) -> Tensor:
        from fedgwc.engines.kernels.triton_block import fits

        if x.ndim != 4 or not fits(x.shape[0]):
            y = F.max_pool2d(F.conv2d(x, self.weight, self.bias, padding=self.padding), 2)
            return F.relu(y) if self.relu else y
        x, w, b = _cast(self.precision, x, self.weight, self.bias)
        # The weight gradient of the next block wants its input with the images last: written here at no cost, carried along.
        turned = getattr(x, "turned", None)
        y, y.turned, _ = _Block.apply(x, turned, w, b, self.padding, self.relu, "ieee" if self.precision == "ieee" else "tf32")
        return y  # type: ignore[no-any-return]


class Dense(nn.Module):
    """A dense layer and, perhaps, ReLU."""

    def __init__(self, linear: nn.Linear, relu: bool, precision: str) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.relu, self.precision = relu, precision

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 2:
            y = F.linear(x, self.weight, self.bias)
            return F.relu(y) if self.relu else y
        return _Dense.apply(*_cast(self.precision, x, self.weight, self.bias), self.relu)  # type: ignore[no-any-return]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the losses [B] of logits [B, C]."""
    return _CrossEntropy.apply(logits.float(), labels)  # type: ignore[no-any-return]


def _cast(precision: str, *tensors: Tensor | None) -> Any:
    """Cast a layer's arguments as autocast does."""
    return [t.bfloat16() if precision == "bf16" and t is not None else t for t in tensors]


class _Stacked(torch.autograd.Function):
    """A function with its own vmap rule."""

    @staticmethod
    def forward(*_: Any) -> Any:
        raise NotImplementedError("only ever called stacked")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save nothing: this part of a backward pass is not differentiated."""


class _Block(_Stacked):
    """The fused block's function and its gradient.

    x [B, C, H, W], twice, w [O, C, kh, kw], bias [O] -> y [B, O, Hp, Wp], twice, and each entry's position in its square.
    """

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        x, turned, w, bias, ctx.padding, _, ctx.precision = inputs
        ctx.has_bias = bias is not None
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(x, turned, w, output[2])

    @staticmethod
    def backward(ctx: Any, dy: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, turned, w, where = ctx.saved_tensors
        wants = ctx.needs_input_grad[0]
        *dx, dw, db = _BlockGradients.apply(x, turned, w, dy, where, ctx.padding, ctx.precision, wants)
        return dx[0] if wants else None, None, dw, db if ctx.has_bias else None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: Tensor, _: Any, w: Tensor, bias: Tensor | None, padding: Pair, relu: bool, precision: str
    ) -> Any:
        from fedgwc.engines.kernels.triton_block import forward

        x, _, w, b = _front(info, in_dims, x, None, w, bias)
        return forward(x, w, b, padding, relu, precision), (0, 0, 0)


class _BlockGradients(_Stacked):
    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: Tensor, turned: Tensor | None, w: Tensor, dy: Tensor, where: Tensor,
        padding: Pair, precision: str, wants: bool,
    ) -> Any:  # fmt: skip
        from fedgwc.engines.kernels.triton_block import gradients

        x, turned, w, dy, where = _front(info, in_dims, x, turned, w, dy, where)
        found = gradients(x, turned, w, dy, where, padding, precision, wants)
        return found, (0,) * len(found)


class _Dense(_Stacked):
    """The dense layer's function and its gradient.

    x [B, I], w [O, I], bias [O] -> [B, O].
    """

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, w, bias, ctx.relu = inputs
        ctx.has_bias = bias is not None
        ctx.save_for_backward(x, w, output)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w, y = ctx.saved_tensors
        slope, db = _DenseSlopes.apply(dy, y, ctx.relu)
        dx = slope @ w if ctx.needs_input_grad[0] else None
        return dx, slope.T @ x, db if ctx.has_bias else None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor, bias: Tensor | None, relu: bool) -> Any:
        from fedgwc.engines.kernels.triton_dense import activate

        x, w, b = _front(info, in_dims, x, w, bias)
        return activate(torch.bmm(x, w.transpose(1, 2)), b, relu), 0


class _DenseSlopes(_Stacked):
    @staticmethod
    def vmap(info: Any, in_dims: Any, dy: Tensor, y: Tensor, relu: bool) -> Any:
        from fedgwc.engines.kernels.triton_dense import slopes

        dy, y = _front(info, in_dims, dy, y)
        return slopes(dy, y, relu), (0, 0)


class _CrossEntropy(_Stacked):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        return _CrossEntropyGradient.apply(*ctx.saved_tensors, slope), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, logits: Tensor, labels: Tensor) -> Any:
        from fedgwc.engines.kernels.triton_dense import cross_entropy

        return cross_entropy(*_front(info, in_dims, logits, labels)), 0


class _CrossEntropyGradient(_Stacked):
    @staticmethod
    def vmap(info: Any, in_dims: Any, logits: Tensor, labels: Tensor, slope: Tensor) -> Any:
        from fedgwc.engines.kernels.triton_dense import cross_entropy_gradient

        return cross_entropy_gradient(*_front(info, in_dims, logits, labels, slope)), 0


def _front(info: Any, in_dims: Any, *tensors: Tensor | None) -> Any:
    """Move the axis of clients to the front."""
    n = info.batch_size
    pairs = zip(tensors, in_dims, strict=False)
    return [None if t is None else t.expand(n, *t.shape) if dim is None else t.movedim(dim, 0) for t, dim in pairs]
