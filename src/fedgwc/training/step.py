"""One step of a client's training.

An engine calls it client by client or stacked under `torch.func.vmap`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import grad

from fedgwc.core.work import LocalTraining
from fedgwc.training.flat_model import FlatModel
from fedgwc.training.optimisers import descent

Step = Callable[..., tuple[Tensor, ...]]


def lone_grad(objective: Callable[[dict[str, Tensor]], Any], has_aux: bool = True) -> Callable[[dict[str, Tensor]], Any]:
    """Replace `torch.func.grad` where one client trains.

    For a process that must start fast.

    It cannot be stacked, and spares the import of torch._dynamo, which takes longer than such a process' whole training.
    """

    def gradient(params: dict[str, Tensor]) -> tuple[dict[str, Tensor], tuple[Tensor, ...]]:
        leaves = {k: p.detach().requires_grad_() for k, p in params.items()}
        with torch.enable_grad():
            value, aux = objective(leaves)
        slopes = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, slopes, strict=True)), tuple(t.detach() for t in aux)

    return gradient


def gradient_of(
    model: FlatModel, copies: bool = False, grad: Callable[..., Any] = grad
) -> Callable[[Tensor, Tensor, Tensor, Tensor], tuple[list[Tensor], Tensor, Tensor]]:
    """Return one client's gradient of its loss.

    A function of (theta [D], x [B, ...], y [B], w [B]).

    It gives the gradients in the order of theta, the buffers after the pass as one vector, and the loss.
    """

    def gradient(theta: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        tensors = model.tensors(theta, copies)
        params = {k: tensors[k] for k in model.param_names}
        buffers = {k: t for k, t in tensors.items() if k not in params}

        def objective(p: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            loss, state = model.loss(p, buffers, x, y, w)
            return loss, (loss, state)

        grads, (loss, state) = grad(objective, has_aux=True)(params)
        return [grads[k] for k in model.param_names], state, loss

    return gradient


def local_step(
    model: FlatModel, local: LocalTraining, ragged: bool = True, copies: bool = False, grad: Callable[..., Any] = grad
) -> Step:
    """Return one client's step.

    (theta, anchor, moves, rate, x, y, w, *memory) -> (theta, loss, *memory).

    theta and anchor [D], x [B, ...], y [B]; `moves` [D] and `rate` [1] have the length 0 where all entries move and the rate is
    `local.lr`. `w` [B] holds the weight of each sample in the loss; if all are 0 the client is done and stays as it is (checked
    only where clients are `ragged`). The optimiser's `memory` is empty at first. `copies` is for `FlatModel.tensors`; `grad`
    may be `lone_grad`.
    """
    gradient, descend = gradient_of(model, copies, grad), descent(local)
    n = model.n_params

    def step(
        theta: Tensor, anchor: Tensor, moves: Tensor, rate: Tensor, x: Tensor, y: Tensor, w: Tensor, *memory: Tensor
    ) -> tuple[Tensor, ...]:
        grads, buffers, loss = gradient(theta, x, y, w)
        g = torch.cat([piece.reshape(-1) for piece in grads])
        new, *memory = descend(theta[:n], g, anchor[:n], moves[:n], rate, *memory)  # type: ignore[assignment]
        if len(buffers):
            new = torch.cat([new, torch.where(moves[n:], buffers, theta[n:]) if len(moves) else buffers])
        if not ragged:
            return new, loss, *memory
        working = w.sum() > 0
        return torch.where(working, new, theta), torch.where(working, loss, torch.nan), *memory

    return step
