"""One step of many clients on a GPU, in kernels made for them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedgwc.core.work import LocalTraining
from fedgwc.engines.kernels import stacked_conv
from fedgwc.engines.kernels.stacked_layers import fused
from fedgwc.training.flat_model import FlatModel
from fedgwc.training.optimisers import OPTIMISERS, SGD, descent
from fedgwc.training.step import Step, gradient_of


def triton_step(model: FlatModel, local: LocalTraining, ragged: bool, precision: str, channels_last: bool) -> Step:
    """Return `local_step` of many clients in kernels made for them."""
    twin = FlatModel(fused(model.module, precision), model.dtype, model.device)
    gradient = torch.func.vmap(stacked_conv.wrapped(gradient_of(twin), precision, channels_last), randomness="different")
    descend = _triton_descent(local) if OPTIMISERS.choose(local.optimiser) is SGD and not local.clip else _stacked_descent(local)
    n = model.n_params

    def step(
        theta: Tensor, anchor: Tensor, moves: Tensor, rate: Tensor, x: Tensor, y: Tensor, w: Tensor, *memory: Tensor
    ) -> tuple[Tensor, ...]:
        grads, buffers, loss = gradient(theta, x, y, w)
        working = w.sum(1) > 0 if ragged else None
        new, *memory = descend(theta, grads, anchor, moves, rate, working, *memory)  # type: ignore[assignment]
        if buffers.shape[1]:
            old = theta[:, n:]
            buffers = torch.where(moves[:, n:], buffers, old) if moves.shape[1] else buffers
            new[:, n:] = buffers if working is None else torch.where(working[:, None], buffers, old)
        return new, loss if working is None else torch.where(working, loss, torch.nan), *memory

    return step


def _triton_descent(local: LocalTraining) -> Callable[..., tuple[Tensor, ...]]:
    """Return the step of SGD as one kernel, on whole models whose buffers it leaves unset."""

    def descend(
        theta: Tensor, grads: list[Tensor], anchor: Tensor, moves: Tensor, rate: Tensor, working: Tensor | None, *memory: Tensor
    ) -> tuple[Tensor, ...]:
        from fedgwc.engines.kernels.triton_dense import descend as launch

        n_params = sum(g.shape[1:].numel() for g in grads)
        velocity = memory[0] if memory else theta.new_zeros(len(theta), n_params if local.momentum else 0)
        new, velocity = launch(theta, grads, velocity, anchor, moves, rate, working, local)
        return (new, velocity) if local.momentum else (new,)

    return descend


def _stacked_descent(local: LocalTraining) -> Callable[..., tuple[Tensor, ...]]:
    """Return any optimiser's step in PyTorch's operations, on whole models whose buffers it leaves unset."""
    stacked = torch.func.vmap(descent(local), randomness="different")

    def descend(
        theta: Tensor, grads: list[Tensor], anchor: Tensor, moves: Tensor, rate: Tensor, working: Tensor | None, *memory: Tensor
    ) -> tuple[Tensor, ...]:
        g = torch.cat([piece.reshape(len(theta), -1) for piece in grads], 1)
        n = g.shape[1]
        old = theta[:, :n]
        new, *kept = stacked(old, g, anchor[:, :n], moves[:, :n], rate, *memory)
        whole = torch.empty_like(theta)
        whole[:, :n] = new if working is None else torch.where(working[:, None], new, old)
        return whole, *kept

    return descend
