"""`conv2d` and 2x2 pooling of stacked clients on a GPU.

Under vmap, in kernels made for many clients instead of one grouped convolution.

Inside `StackedConvolutions` every plain `conv2d` (stride 1, no groups, no dilation) and every 2x2 `max_pool2d` is run as a
function that knows how it is stacked. Everything else in a model goes its usual way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight
from torch.overrides import TorchFunctionMode

from fedgwc.engines.kernels.stacked_layers import cross_entropy
from fedgwc.training.loss import weighted_cross_entropy

Pair = tuple[int, int]


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Tell whether our kernels can run; Triton comes with PyTorch's CUDA builds."""
    if device.type != "cuda" or dtype != torch.float32:
        return False
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def wrapped(f: Callable[..., Any], precision: str, channels_last: bool = True) -> Callable[..., Any]:
    """Run the convolutions of `f` in our stacked kernels.

    `precision` is "ieee", "tf32" or "bf16"; outputs are channels last or not.
    """

    def call(*args: Any) -> Any:
        with StackedConvolutions(precision, channels_last), torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            return f(*args)

    return call


class StackedConvolutions(TorchFunctionMode):
    """A context whose vmapped convolutions and pools use our kernels."""

    def __init__(self, precision: str, channels_last: bool = True) -> None:
        super().__init__()
        self.precision, self.channels_last = precision, channels_last
        self._first: Any = None  # what the first convolution gave: its slopes are wanted for a weight gradient only

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.conv2d and _is_plain(*args, **kwargs):
            y = self._convolution(*args, **kwargs)
            if not torch._C._functorch.is_gradtrackingtensor(args[0]):
                self._first = y
            return y
        if getattr(func, "__name__", "") in ("max_pool2d", "_max_pool2d") and _is_square_pool(*args, **kwargs):
            return _Pool.apply(args[0], args[0] is self._first and self.precision != "bf16")[0]
        if func is weighted_cross_entropy:
            out, y, w = args
            return (cross_entropy(out, y) * w).sum()
        return func(*args, **kwargs)

    def _convolution(self, x: Tensor, w: Tensor, bias: Tensor | None = None, *rest: Any, padding: Any = None, **_: Any) -> Any:
        given = padding if padding is not None else rest[1] if len(rest) > 1 else 0
        if self.precision == "bf16":  # what autocast does to a convolution's arguments
            x, w, bias = x.bfloat16(), w.bfloat16(), None if bias is None else bias.bfloat16()
        y = _Convolution.apply(x, w, bias, _pair(given), "ieee" if self.precision == "ieee" else "tf32")
        return y if self.channels_last else y.contiguous()


def _is_plain(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> bool:
    if isinstance(padding, str) or x.ndim != 4 or x.dtype == torch.float64 or groups != 1:
        return False
    pad = _pair(padding)
    return _pair(stride) == _pair(dilation) == (1, 1) and pad[0] < w.shape[2] and pad[1] < w.shape[3]


def _is_square_pool(
    x: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> bool:
    """Recognise 2x2 squares side by side, the pooling of nearly every small network."""
    sides = (_pair(kernel_size), _pair(stride or kernel_size), _pair(padding), _pair(dilation))
    return x.ndim == 4 and sides == ((2, 2), (2, 2), (0, 0), (1, 1)) and not ceil_mode and not return_indices


def _pair(value: int | Pair) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


class _Convolution(torch.autograd.Function):
    """Convolution of x [B, C, H, W], w [O, C, kh, kw], bias [O].

    Under vmap each has a leading axis of clients.
    """

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
        dw, db = _WeightGradient.apply(x, dy, w.shape[-2:], ctx.padding, ctx.precision)
        return dx, dw, db if ctx.has_bias else None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor, bias: Tensor | None, padding: Pair, precision: str) -> Any:
        n = info.batch_size
        b = None if bias is None else _front(bias, in_dims[2], n)
        return _kernels().convolve(_last(x, in_dims[0], n), _front(w, in_dims[1], n), b, padding, precision), 0


class _Inner(torch.autograd.Function):
    """A part of a backward pass, without a gradient of its own."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...


class _InputGradient(_Inner):
    @staticmethod
    def forward(dy: Tensor, w: Tensor, size: Any, padding: Pair, precision: str) -> Tensor:
        return conv2d_input((dy.shape[0], w.shape[1], *size), w, dy, padding=padding)  # type: ignore[no-any-return]

    @staticmethod
    def vmap(info: Any, in_dims: Any, dy: Tensor, w: Tensor, size: Any, padding: Pair, precision: str) -> Any:
        n = info.batch_size
        return _kernels().input_gradient(_last(dy, in_dims[0], n), _front(w, in_dims[1], n), padding, precision), 0


class _WeightGradient(_Inner):
    """Gradients (dw, db): sums over the same output gradients."""

    @staticmethod
    def forward(x: Tensor, dy: Tensor, kernel: Any, padding: Pair, precision: str) -> tuple[Tensor, Tensor]:
        return conv2d_weight(x, (dy.shape[1], x.shape[1], *kernel), dy, padding=padding), dy.sum((0, 2, 3))

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, dy: Tensor, kernel: Any, padding: Pair, precision: str) -> Any:
        left, right = (_front(t, dim, info.batch_size) for t, dim in zip((x, dy), in_dims, strict=False))
        return _kernels().weight_gradient(left, right, tuple(kernel), padding, precision), (0, 0)


class _Pool(torch.autograd.Function):
    """2x2 maxima and their positions in the squares."""

    @staticmethod
    def forward(x: Tensor, turned: bool) -> tuple[Tensor, Tensor]:
        y, flat = F.max_pool2d(x, 2, return_indices=True)
        width = x.shape[-1]
        return y, ((flat // width) % 2 * 2 + flat % width % 2).to(torch.int8)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.size, ctx.turned = tuple(inputs[0].shape[-2:]), inputs[1]

    @staticmethod
    def backward(ctx: Any, dy: Tensor, _: Any) -> Any:
        return _Unpool.apply(dy, ctx.saved_tensors[0], ctx.size, ctx.turned), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, turned: bool) -> Any:
        from fedgwc.engines.kernels.triton_images import pool

        return pool(_last(x, in_dims[0], info.batch_size)), (0, 0)


class _Unpool(_Inner):
    @staticmethod
    def forward(dy: Tensor, where: Tensor, size: Pair, turned: bool) -> Tensor:
        raise NotImplementedError("only ever called stacked")

    @staticmethod
    def vmap(info: Any, in_dims: Any, dy: Tensor, where: Tensor, size: Pair, turned: bool) -> Any:
        from fedgwc.engines.kernels.triton_images import unpool

        n = info.batch_size
        return unpool(_last(dy, in_dims[0], n), _last(where, in_dims[1], n), *size, turned), 0


def _front(t: Tensor, dim: int | None, n: int) -> Tensor:
    return t.expand(n, *t.shape) if dim is None else t.movedim(dim, 0)


def _last(t: Tensor, dim: int | None, n: int) -> Tensor:
    return _kernels().channels_last(_front(t, dim, n))  # type: ignore[no-any-return]


def _kernels() -> Any:
    from fedgwc.engines.kernels import triton_conv

    return triton_conv
