"""Fused elementwise kernels for many clients.

The parts of a step beside convolutions and matrix products, each as one pass over memory.

Bias and ReLU of a dense layer, cross-entropy, and the SGD step on all parameters at once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedgwc.core.work import LocalTraining


@triton.jit
def _activate(
    y, bias, sbn, BATCH: tl.constexpr, OC: tl.constexpr, HAS_BIAS: tl.constexpr, RELU: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute y[n, b, o] = relu(y + bias[n, o]), in place."""
    client = tl.program_id(1).to(tl.int64)
    e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = e < BATCH * OC
    value = tl.load(y + client * (BATCH * OC) + e, mask=mask, other=0.0)
    if HAS_BIAS:
        value += tl.load(bias + client * sbn + e % OC, mask=mask, other=0.0)
    if RELU:
        value = tl.where(value <= 0, 0.0, value)
    tl.store(y + client * (BATCH * OC) + e, value, mask=mask)


@triton.jit
def _slopes(
    dy, y, slope, db, syn, syb, syo,
    BATCH: tl.constexpr, OC: tl.constexpr, RELU: tl.constexpr, BB: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Compute slope[n, b, o] = dy where y > 0, and db[n, o].

    db is the sum of slope over b.
    """
    client = tl.program_id(1).to(tl.int64)
    o = tl.program_id(0) * BN + tl.arange(0, BN)[None, :]
    total = tl.zeros((BB, BN), tl.float32)
    for start in range(0, BATCH, BB):
        b = start + tl.arange(0, BB)[:, None]
        mask = (b < BATCH) & (o < OC)
        value = tl.load(dy + client * syn + b * syb + o * syo, mask=mask, other=0.0)
        at = (client * BATCH + b) * OC + o
        if RELU:
            value = tl.where(tl.load(y + at, mask=mask, other=0.0) <= 0, 0.0, value)
        tl.store(slope + at, value, mask=mask)
        total += value.to(tl.float32)
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    tl.store(db + client * OC + column, tl.sum(total, 0), mask=column < OC)


@triton.jit
def _losses(logits, labels, losses, sn, sb, sln, slb, BATCH: tl.constexpr, CLASSES: tl.constexpr, BLOCK: tl.constexpr):
    """Compute each row's loss, losses[n, b].

    The log sum exp of a row, less the entry of its label.
    """
    client, b = tl.program_id(1).to(tl.int64), tl.program_id(0)
    c = tl.arange(0, BLOCK)
    row = logits + client * sn + b * sb
    z = tl.load(row + c, mask=c < CLASSES, other=-float("inf"))
    top = tl.max(z, 0)
    label = tl.load(labels + client * sln + b * slb)
    real = (label >= 0) & (label < CLASSES)  # PyTorch ignores -100, and so is any other number that is no class
    loss = tl.log(tl.sum(tl.exp(z - top), 0)) - (tl.load(row + label, mask=real, other=0.0) - top)
    tl.store(losses + client * BATCH + b, tl.where(real, loss, 0.0))


@triton.jit
def _loss_slopes(
    logits, labels, slopes, out, sn, sb, sln, slb, ssn, ssb,
    BATCH: tl.constexpr, CLASSES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the losses' gradients, out[n, b, c].

    slopes[n, b] * (softmax of the row, less 1 at its label).
    """
    client, b = tl.program_id(1).to(tl.int64), tl.program_id(0)
    c = tl.arange(0, BLOCK)
    z = tl.load(logits + client * sn + b * sb + c, mask=c < CLASSES, other=-float("inf"))
    e = tl.exp(z - tl.max(z, 0))
    label = tl.load(labels + client * sln + b * slb)
    real = (label >= 0) & (label < CLASSES)
    slope = tl.where(real, tl.load(slopes + client * ssn + b * ssb), 0.0)
    value = (e / tl.sum(e, 0) - tl.where(c == label, 1.0, 0.0)) * slope
    tl.store(out + (client * BATCH + b) * CLASSES + c, value, mask=c < CLASSES)


@triton.jit
def _descend(
    theta, grads, velocity, anchor, moves, rate, working, new, new_velocity, stn, san, smn, D,
    FIRST: tl.constexpr, LENGTH: tl.constexpr, STRIDES: tl.constexpr, N_PARAMS: tl.constexpr,
    LR: tl.constexpr, DECAY: tl.constexpr, PROX: tl.constexpr, MOMENTUM: tl.constexpr,
    MASKED: tl.constexpr, SCHEDULED: tl.constexpr, RAGGED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Take one step of SGD on theta [n, D].

    The gradient comes in pieces, as the tensors of a model lie in its vector.
    """
    client = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0) * BLOCK
    e = start + tl.arange(0, BLOCK)
    mask = e < N_PARAMS
    g = tl.zeros((BLOCK,), tl.float32)
    for t in tl.static_range(len(grads)):
        if (start < FIRST[t] + LENGTH[t]) & (start + BLOCK > FIRST[t]):  # most blocks lie in one piece
            mine = (e >= FIRST[t]) & (e < FIRST[t] + LENGTH[t])
            g += tl.load(grads[t] + client * STRIDES[t] + (e - FIRST[t]), mask=mine, other=0.0)
    old = tl.load(theta + client * stn + e, mask=mask, other=0.0)
    if DECAY != 0:
        g += DECAY * old
    if PROX != 0:
        g += PROX * (old - tl.load(anchor + client * san + e, mask=mask, other=0.0))
    if MOMENTUM != 0:
        g += MOMENTUM * tl.load(velocity + client * N_PARAMS + e, mask=mask, other=0.0)
        tl.store(new_velocity + client * N_PARAMS + e, g, mask=mask)
    value = old - LR * g
    if SCHEDULED:
        value = old - tl.load(rate + client) * g
    if MASKED:
        value = tl.where(tl.load(moves + client * smn + e, mask=mask, other=0), value, old)
    if RAGGED:
        value = tl.where(tl.load(working + client), value, old)
    tl.store(new + client * D + e, value, mask=mask)


def activate(y: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """Add bias [n, O] to y [n, B, O] and cut off at 0, in place."""
    n, batch, out = y.shape
    _activate[(triton.cdiv(batch * out, 1024), n)](
        y, y if bias is None else bias, 0 if bias is None else bias.stride(0),
        BATCH=batch, OC=out, HAS_BIAS=bias is not None, RELU=relu, BLOCK=1024,
    )  # fmt: skip
    return y


def slopes(dy: Tensor, y: Tensor, relu: bool) -> tuple[Tensor, Tensor]:
    """Return the gradient of `activate`: slopes [n, B, O], and their sums [n, O]."""
    n, batch, out = dy.shape
    slope = torch.empty(n, batch, out, device=dy.device, dtype=dy.dtype)
    db = torch.empty(n, out, device=dy.device, dtype=dy.dtype)
    _slopes[(triton.cdiv(out, 32), n)](
        dy, y, slope, db, *dy.stride(), BATCH=batch, OC=out, RELU=relu, BB=min(64, triton.next_power_of_2(batch)), BN=32
    )
    return slope, db


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the losses [n, B] of logits [n, B, C]."""
    n, batch, classes = logits.shape
    logits = logits if logits.stride(2) == 1 else logits.contiguous()
    losses = torch.empty(n, batch, device=logits.device)
    _losses[(batch, n)](
        logits, labels, losses, *logits.stride()[:2], *labels.stride(),
        BATCH=batch, CLASSES=classes, BLOCK=triton.next_power_of_2(classes), num_warps=1,
    )  # fmt: skip
    return losses


def cross_entropy_gradient(logits: Tensor, labels: Tensor, slope: Tensor) -> Tensor:
    """Return the gradient [n, B, C] of the losses, for their slopes [n, B]."""
    n, batch, classes = logits.shape
    logits = logits if logits.stride(2) == 1 else logits.contiguous()
    out = torch.empty(n, batch, classes, device=logits.device)
    _loss_slopes[(batch, n)](
        logits, labels, slope, out, *logits.stride()[:2], *labels.stride(), *slope.stride(),
        BATCH=batch, CLASSES=classes, BLOCK=triton.next_power_of_2(classes), num_warps=1,
    )  # fmt: skip
    return out


def descend(
    theta: Tensor, grads: list[Tensor], velocity: Tensor, anchor: Tensor, moves: Tensor, rate: Tensor,
    working: Tensor | None, local: LocalTraining,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Take one step of SGD for all clients at once.

    As `training.optimisers.descent` does: returns new theta [n, D] and velocity.

    theta and anchor [n, D], moves [n, D] or [n, 0], rate [n, 1] or [n, 0], grads: a tensor [n, ...] for each of a model's;
    buffers beyond them are left unset.
    """
    n, size = theta.shape
    pieces = [g.reshape(n, -1) for g in grads]
    lengths = [g.shape[1] for g in pieces]
    first = [sum(lengths[:t]) for t in range(len(lengths))]
    new, new_velocity = torch.empty_like(theta), torch.empty_like(velocity)
    n_params = sum(lengths)
    masked, scheduled = moves.shape[1] > 0, rate.shape[1] > 0
    _descend[(triton.cdiv(n_params, 1024), n)](
        theta, tuple(pieces), velocity, anchor, moves if masked else theta, rate.contiguous() if scheduled else theta,
        theta if working is None else working, new, new_velocity, theta.stride(0), anchor.stride(0), moves.stride(0), size,
        FIRST=tuple(first), LENGTH=tuple(lengths), STRIDES=tuple(g.stride(0) for g in pieces), N_PARAMS=n_params,
        LR=local.lr, DECAY=local.weight_decay, PROX=local.prox, MOMENTUM=local.momentum,
        MASKED=masked, SCHEDULED=scheduled, RAGGED=working is not None, BLOCK=1024,
    )  # fmt: skip
    return new, new_velocity
