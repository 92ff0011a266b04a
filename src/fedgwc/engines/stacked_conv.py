"""`conv2d` under vmap on a GPU: one convolution per client, in kernels made for that, instead of one grouped convolution.

While a step is recorded, `stacked_convolutions()` catches every plain `conv2d` (stride 1, no groups, no dilation) and runs it
as a function that knows how it is stacked. Everything else in a model goes its usual way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight
from torch.overrides import TorchFunctionMode

Pair = tuple[int, int]


def available() -> bool:
    """Triton comes with PyTorch's CUDA builds."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return torch.cuda.is_available()


class StackedConvolutions(TorchFunctionMode):
    """Inside this context a vmapped `conv2d` runs in our kernels, in `precision` "ieee", "tf32" or "bf16"."""

    def __init__(self, precision: str) -> None:
        super().__init__()
        self.precision = precision

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.conv2d:
            call = _plain(*args, **(kwargs or {}))
            if call is not None:
                x, w, bias, padding = call
                if self.precision == "bf16":  # what autocast does to a convolution's arguments
                    x, w, bias = x.bfloat16(), w.bfloat16(), None if bias is None else bias.bfloat16()
                return _Convolution.apply(x, w, bias, padding, "ieee" if self.precision == "ieee" else "tf32")
        return func(*args, **(kwargs or {}))


def _plain(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> tuple[Tensor, Tensor, Tensor | None, Pair] | None:
    """The convolution's tensors and padding, or None where it is not of the simple kind."""
    pad = _pair(padding) if not isinstance(padding, str) else None
    simple = x.ndim == 4 and _pair(stride) == (1, 1) and _pair(dilation) == (1, 1) and groups == 1 and pad is not None
    fits = pad is not None and pad[0] < w.shape[2] and pad[1] < w.shape[3]
    return (x, w, bias, pad) if simple and fits and x.dtype != torch.float64 and pad is not None else None


def _pair(value: int | Pair) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


class _Convolution(torch.autograd.Function):
    """x [B, C, H, W], w [O, C, kh, kw], bias [O]; under vmap each with a leading axis of clients."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, bias: Tensor | None, padding: Pair, precision: str) -> Tensor:
        return F.conv2d(x, w, bias, padding=padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, w, bias, ctx.padding, ctx.precision = inputs
        ctx.has_bias = bias is not None
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        dx = _InputGradient.apply(dy, w, x.shape[-2:], ctx.padding, ctx.precision) if ctx.needs_input_grad[0] else None
        dw = _WeightGradient.apply(x, dy, w.shape[-2:], ctx.padding, ctx.precision) if ctx.needs_input_grad[1] else None
        db = dy.sum((0, 2, 3)) if ctx.has_bias else None
        return dx, dw, db, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: Tensor, w: Tensor, bias: Tensor | None, padding: Pair, precision: str
    ) -> tuple[Tensor, int]:
        n = info.batch_size
        b = None if bias is None else _front(bias, in_dims[2], n)
        return _kernels().convolve(_last(_front(x, in_dims[0], n)), _front(w, in_dims[1], n), b, padding, precision), 0


class _InputGradient(torch.autograd.Function):
    @staticmethod
    def forward(dy: Tensor, w: Tensor, size: Any, padding: Pair, precision: str) -> Tensor:
        shape = (dy.shape[0], w.shape[1], *size)
        return conv2d_input(shape, w, dy, padding=padding)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, dy: Tensor, w: Tensor, size: Any, padding: Pair, precision: str) -> tuple[Tensor, int]:
        n = info.batch_size
        return _kernels().input_gradient(_last(_front(dy, in_dims[0], n)), _front(w, in_dims[1], n), padding, precision), 0


class _WeightGradient(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, dy: Tensor, kernel: Any, padding: Pair, precision: str) -> Tensor:
        shape = (dy.shape[1], x.shape[1], *kernel)
        return conv2d_weight(x, shape, dy, padding=padding)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, dy: Tensor, kernel: Any, padding: Pair, precision: str) -> tuple[Tensor, int]:
        n = info.batch_size
        left, right = _last(_front(x, in_dims[0], n)), _last(_front(dy, in_dims[1], n))
        return _kernels().weight_gradient(left, right, tuple(kernel), padding, precision), 0


def _front(t: Tensor, dim: int | None, n: int) -> Tensor:
    return t.expand(n, *t.shape) if dim is None else t.movedim(dim, 0)


def _last(x: Tensor) -> Tensor:
    """Channels innermost, copying only where they are not."""
    from fedgwc.engines.triton_conv import channels_last

    inner = x.permute(0, 1, 3, 4, 2)
    return x if inner.is_contiguous() else channels_last(x)


def _kernels() -> Any:
    from fedgwc.engines import triton_conv

    return triton_conv


def wrapped(f: Callable[..., Any], precision: str) -> Callable[..., Any]:
    """`f` with its convolutions stacked."""

    def call(*args: Any) -> Any:
        with StackedConvolutions(precision), torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            return f(*args)

    return call
