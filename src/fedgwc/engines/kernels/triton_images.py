"""Input batches and 2x2 max-pooling for many clients.

Each as one pass over memory.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _fold(z, k: tl.constexpr):
    return z ^ ((z >> k) & ((1 << (64 - k)) - 1))


@triton.jit
def _mix(z):
    """Compute SplitMix64 on int64, as fedgwc.core.random.mix does."""
    z = _fold(z + -7046029254386353131, 30) * -4658895280553007687
    return _fold(_fold(z, 27) * -7723592293110705685, 31)


@triton.jit
def _below(key, counter, n: tl.constexpr):
    """Draw uniform integers, as fedgwc.core.random.integers does."""
    return (((_mix(key ^ _mix(counter)) >> 32) & 0xFFFFFFFF) * n) >> 32


@triton.jit
def _prepare(
    x, rows, keys, shift, scale, out, first,
    BATCH: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    PADDING: tl.constexpr, AUGMENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write one image of the batch: out[image, h, w, c].

    Moved, mirrored and normalised; outside the image is black (0).
    """
    image = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    h, w = p // W, p % W
    if AUGMENT:
        key = tl.load(keys + image // BATCH)
        counter = (1 << 62) + ((first + image % BATCH) << 2)
        h += (_below(key, counter, 2 * PADDING + 1) - PADDING).to(tl.int32)
        right = (_below(key, counter + 1, 2 * PADDING + 1) - PADDING).to(tl.int32)
        flip = _below(key, counter + 2, 2).to(tl.int32)
        w = tl.where(flip == 1, W - 1 - w, w) + right
    inside = (p < H * W) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
    x += tl.load(rows + image) * (C * H * W)
    out += image * (C * H * W)
    for c in tl.static_range(C):
        value = tl.load(x + c * H * W + h * W + w, mask=inside, other=0).to(tl.float32)
        value = (value - tl.load(shift + c)) / tl.load(scale + c)
        tl.store(out + p * C + c, value, mask=p < H * W)


def prepare(
    x: Tensor, rows: Tensor, keys: Tensor | None, step: int, shift: Tensor, scale: Tensor, padding: int, augment: bool
) -> Tensor:
    """Return the batch of `Samples.inputs`, in one pass.

    [n, B, C, H, W], channels last, of x [R, C, H, W] at rows [n, B].
    """
    n, batch = rows.shape
    channels, height, width = x.shape[1:]
    out = torch.empty(n, batch, height, width, channels, device=x.device)
    block = 256
    grid = (n * batch, triton.cdiv(height * width, block))
    _prepare[grid](
        x, rows.contiguous(), rows if keys is None else keys, shift, scale, out, step << 20,
        BATCH=batch, C=channels, H=height, W=width, PADDING=padding, AUGMENT=augment, BLOCK=block,
    )  # fmt: skip
    return out.permute(0, 1, 4, 2, 3)


@triton.jit
def _pool(x, y, where, total, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the maximum of each 2x2 square and its position.

    One element of y per lane.
    """
    HO: tl.constexpr = H // 2
    WO: tl.constexpr = W // 2
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = e < total
    c, wo, ho, image = e % C, (e // C) % WO, (e // (C * WO)) % HO, e // (C * WO * HO)
    at = x + ((image * H + 2 * ho) * W + 2 * wo) * C + c
    best = tl.load(at, mask=mask, other=0.0)
    index = tl.zeros((BLOCK,), tl.int32)
    for q in tl.static_range(1, 4):
        value = tl.load(at + ((q // 2) * W + q % 2) * C, mask=mask, other=0.0)
        larger = (value > best) | (value != value)  # NaN wins, as in PyTorch
        best = tl.where(larger, value, best)
        index = tl.where(larger, q, index)
    tl.store(y + e, best, mask=mask)
    tl.store(where + e, index.to(tl.int8), mask=mask)


@triton.jit
def _unpool(dy, where, dx, total, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr):
    """Send each gradient back to its maximum's position.

    One element of dx per lane.
    """
    HO: tl.constexpr = H // 2
    WO: tl.constexpr = W // 2
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c, w, h, image = e % C, (e // C) % W, (e // (C * W)) % H, e // (C * W * H)
    inside = (e < total) & (h // 2 < HO) & (w // 2 < WO)
    source = ((image * HO + h // 2) * WO + w // 2) * C + c
    mine = tl.load(where + source, mask=inside, other=-1).to(tl.int32) == (h % 2 * 2 + w % 2).to(tl.int32)
    tl.store(dx + e, tl.load(dy + source, mask=inside & mine, other=0.0), mask=e < total)


@triton.jit
def _unpool_turned(
    dy, where, dx,
    BATCH: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, BB: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Send gradients back, with the images of dx innermost.

    dx is [n, H, W, C, B]; one output position per program.
    """
    HO: tl.constexpr = H // 2
    WO: tl.constexpr = W // 2
    client = tl.program_id(2).to(tl.int64)
    position = tl.program_id(0)
    ho, wo = position // WO, position % WO
    b = (tl.program_id(1) % ((BATCH + BB - 1) // BB)) * BB + tl.arange(0, BB)
    c = (tl.program_id(1) // ((BATCH + BB - 1) // BB)) * BC + tl.arange(0, BC)
    source = ((client * BATCH + b[:, None]) * (HO * WO) + position) * C + c[None, :]
    mask = (b < BATCH)[:, None] & (c < C)[None, :]
    slope, index = tl.load(dy + source, mask=mask, other=0.0), tl.load(where + source, mask=mask, other=-1)
    for q in tl.static_range(4):
        target = ((client * H + 2 * ho + q // 2) * W + 2 * wo + q % 2) * C + c
        turned = tl.trans(tl.where(index == q, slope, 0.0))
        tl.store(dx + target[:, None] * BATCH + b[None, :], turned, mask=(c < C)[:, None] & (b < BATCH)[None, :])


def pool(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the 2x2 maxima of x and their positions, channels last.

    x [n, B, C, H, W] becomes [n, B, C, H

    2, W

    2].
    """
    n, batch, channels, height, width = x.shape
    y = torch.empty(n, batch, height // 2, width // 2, channels, device=x.device, dtype=x.dtype)
    where = torch.empty_like(y, dtype=torch.int8)
    _pool[(triton.cdiv(y.numel(), 1024),)](x, y, where, y.numel(), C=channels, H=height, W=width, BLOCK=1024)
    return y.permute(0, 1, 4, 2, 3), where.permute(0, 1, 4, 2, 3)


def unpool(dy: Tensor, where: Tensor, height: int, width: int, turned: bool) -> Tensor:
    """Return the gradient of `pool` for dy, channels last.

    The result is channels last too or, if `turned`, images last.
    """
    n, batch, channels = dy.shape[:3]
    if turned and height % 2 == width % 2 == 0:  # an odd border has no square, so nobody would write its zeros
        dx = torch.empty(n, height, width, channels, batch, device=dy.device, dtype=dy.dtype)
        blocks = triton.cdiv(batch, 64) * triton.cdiv(channels, 32)
        grid = (height * width // 4, blocks, n)
        _unpool_turned[grid](dy, where, dx, BATCH=batch, C=channels, H=height, W=width, BB=64, BC=32)
        return dx.permute(0, 4, 3, 1, 2)
    dx = torch.empty(n, batch, height, width, channels, device=dy.device, dtype=dy.dtype)
    _unpool[(triton.cdiv(dx.numel(), 1024),)](dy, where, dx, dx.numel(), C=channels, H=height, W=width, BLOCK=1024)
    return dx.permute(0, 1, 4, 2, 3)
