"""One step of a client's training, which an engine calls client by client or stacked under `torch.func.vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import grad

from fedgwc.core.work import LocalTraining
from fedgwc.training.flat_model import FlatModel

Step = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def lone_grad(objective: Callable[[dict[str, Tensor]], Any], has_aux: bool = True) -> Callable[[dict[str, Tensor]], Any]:
    """`torch.func.grad` with its auxiliary output, for a process that trains a client or two and must start fast.

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
    model: FlatModel, own: bool = False, grad: Callable[..., Any] = grad
) -> Callable[[Tensor, Tensor, Tensor, Tensor], tuple[list[Tensor], Tensor, Tensor]]:
    """One client's (theta [D], x [B, ...], y [B], w [B]) -> (gradients in the order of theta, buffers after the pass, loss)."""

    def gradient(theta: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        tensors = model.tensors(theta, own)
        params = {k: tensors[k] for k in model.param_names}
        buffers = {k: t for k, t in tensors.items() if k not in params}

        def objective(p: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            loss, state = model.loss(p, buffers, x, y, w)
            return loss, (loss, state)

        grads, (loss, state) = grad(objective, has_aux=True)(params)
        return [grads[k] for k in model.param_names], state, loss

    return gradient


def sgd_step(
    model: FlatModel, local: LocalTraining, ragged: bool = True, own: bool = False, grad: Callable[..., Any] = grad
) -> Step:
    """One step for one client: (theta [D], velocity, anchor [D], x [B, ...], y [B], w [B]) -> (theta, velocity, loss).

    `w` holds the weight of each sample in the loss; if all are 0 the client is done and stays as it is (checked only where
    clients are `ragged`).
    `velocity` is [n_params] with local momentum and [0] without. `own` is for `FlatModel.tensors`; `grad` may be `lone_grad`.
    """
    gradient = gradient_of(model, own, grad)

    def step(theta: Tensor, velocity: Tensor, anchor: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        grads, state, loss = gradient(theta, x, y, w)
        old = theta[: model.n_params]
        g = torch.cat([piece.reshape(-1) for piece in grads])
        if local.weight_decay:
            g = torch.add(g, old, alpha=local.weight_decay)
        if local.prox:
            g = torch.add(g, old - anchor[: model.n_params], alpha=local.prox)
        if local.momentum:
            velocity = g = torch.add(g, velocity, alpha=local.momentum)
        new = torch.sub(old, g, alpha=local.lr)
        new = torch.cat([new, state]) if len(state) else new
        if not ragged:
            return new, velocity, loss
        working = w.sum() > 0
        return torch.where(working, new, theta), velocity, torch.where(working, loss, torch.nan)

    return step
