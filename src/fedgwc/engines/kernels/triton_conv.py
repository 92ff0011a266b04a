"""Convolutions of many clients at once in Triton.

Each client has its own weights; the convolutions are implicit matrix products.

A cohort's convolution is `n` small independent ones. The library's way to batch them, one grouped convolution, reaches a few
percent of a GPU; here each client's convolution is a matrix product [positions, patch] x [patch, channels] whose left side is
gathered on the fly from channels-last images. Forward and input gradient are one kernel, the weight gradient another.
Tensor cores read TF32 operands fastest when the summed axis is innermost in memory, so each kernel gets its operands that way.
Tile sizes were measured on an H200 (`python -m benchmarks.tiles`).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

Pair = tuple[int, int]
MULTIPROCESSORS = 132  # of an H200; only speed depends on it


@triton.jit
def _convolve(
    x, w, bias, y,
    sxn, sxb, sxh, sxw, sxc, swn, sbn,
    BATCH: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OC: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute y[n, b, ho, wo, o], one tile per program.

    The sum over k = (i, j, c) of x[n, b, ho + i - PH, wo + j - PW, c] * w[n, o, k].
    """
    client = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    wo, ho, b = m % WO, (m // WO) % HO, m // (WO * HO)
    x += client * sxn
    w += client * swn
    inside = m < BATCH * HO * WO
    K: tl.constexpr = KH * KW * C
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        c, j, i = k % C, (k // C) % KW, k // (C * KW)
        h = ho[:, None] + i[None, :] - PH
        v = wo[:, None] + j[None, :] - PW
        there = inside[:, None] & (k < K)[None, :]
        if PH > 0 or PW > 0:
            there = there & (h >= 0) & (h < H) & (v >= 0) & (v < W)
        patch = tl.load(x + b[:, None] * sxb + h * sxh + v * sxw + c[None, :] * sxc, mask=there, other=0.0)
        weight = tl.load(w + o[:, None] * K + k[None, :], mask=(o < OC)[:, None] & (k < K)[None, :], other=0.0)
        acc = tl.dot(patch, weight.T, acc, input_precision=PRECISION)
    if HAS_BIAS:
        acc += tl.load(bias + client * sbn + o, mask=o < OC, other=0.0)[None, :].to(tl.float32)
    y += client * (BATCH * HO * WO * OC)
    tl.store(y + m[:, None] * OC + o[None, :], acc.to(y.dtype.element_ty), mask=inside[:, None] & (o < OC)[None, :])


@triton.jit
def _weight_gradient(
    x, dy, dw, db,
    BATCH: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OC: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    SPLITS: tl.constexpr, PRECISION: tl.constexpr, INNER: tl.constexpr,
    BK: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Sum dw[n, split, o, k] over a share of positions and images.

    Of x[n, patch, k] * dy[n, position, o]; db likewise.

    INNER: x is [n, H, W, C, B] and dy [n, Ho, Wo, O, B], so that a block sums over images, innermost in memory;
    otherwise both are channels-last and a block sums over positions m = (b, ho, wo).
    """
    part = tl.program_id(2)
    client = (part // SPLITS).to(tl.int64)
    split = part % SPLITS
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    K: tl.constexpr = KH * KW * C
    c, j, i = k % C, (k // C) % KW, k // (C * KW)
    x += client * (BATCH * H * W * C)
    dy += client * (BATCH * HO * WO * OC)
    acc = tl.zeros((BK, BN), tl.float32)
    sums = tl.zeros((BN,), tl.float32)
    IMAGES: tl.constexpr = (BATCH + BM - 1) // BM  # blocks of images per position
    BLOCKS: tl.constexpr = HO * WO * IMAGES if INNER else (BATCH * HO * WO + BM - 1) // BM
    PER_SPLIT: tl.constexpr = (BLOCKS + SPLITS - 1) // SPLITS
    for step in range(PER_SPLIT):
        block = split * PER_SPLIT + step
        if INNER:
            position = block // IMAGES
            b = (block % IMAGES) * BM + tl.arange(0, BM)
            valid = (b < BATCH) & (block < BLOCKS)
            h = position // WO + i - PH
            v = position % WO + j - PW
            fits = (k < K) & (h >= 0) & (h < H) & (v >= 0) & (v < W)
            patch = tl.load(
                x + ((h * W + v) * C + c)[:, None] * BATCH + b[None, :], mask=fits[:, None] & valid[None, :], other=0.0
            )
            slope = tl.load(
                dy + (position * OC + o)[:, None] * BATCH + b[None, :], mask=(o < OC)[:, None] & valid[None, :], other=0.0
            )
            acc = tl.dot(patch, slope.T, acc, input_precision=PRECISION)
            sums += tl.sum(slope.to(tl.float32), 1)
        else:
            m = block * BM + tl.arange(0, BM)
            valid = m < BATCH * HO * WO
            wo, ho, b = m % WO, (m // WO) % HO, m // (WO * HO)
            h = ho[None, :] + i[:, None] - PH
            v = wo[None, :] + j[:, None] - PW
            there = valid[None, :] & (k < K)[:, None] & (h >= 0) & (h < H) & (v >= 0) & (v < W)
            patch = tl.load(x + ((b[None, :] * H + h) * W + v) * C + c[:, None], mask=there, other=0.0)
            slope = tl.load(dy + m[:, None] * OC + o[None, :], mask=valid[:, None] & (o < OC)[None, :], other=0.0)
            acc = tl.dot(patch, slope, acc, input_precision=PRECISION)
            sums += tl.sum(slope.to(tl.float32), 0)
    dw += part.to(tl.int64) * (K * OC)
    tl.store(dw + o[None, :] * K + k[:, None], acc, mask=(k < K)[:, None] & (o < OC)[None, :])
    if tl.program_id(0) == 0:
        tl.store(db + part * OC + o, sums, mask=o < OC)


@triton.jit
def _add_shares(
    parts, sums, dw, db,
    OC: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr, SHARES: tl.constexpr, SUMS: tl.constexpr,
    BT: tl.constexpr, BC: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Add the shares of dw[n, o, c, tap] in a fixed order.

    Of parts[n, share, o, tap, c]; db[n, o] likewise.
    """
    client, o = tl.program_id(0).to(tl.int64) // OC, tl.program_id(0) % OC
    tap = tl.arange(0, BT)[:, None]
    c = tl.program_id(1) * BC + tl.arange(0, BC)[None, :]
    mask = (tap < TAPS) & (c < C)
    total = tl.zeros((BT, BC), tl.float32)
    for share in range(SHARES):
        total += tl.load(parts + ((client * SHARES + share) * OC + o) * (TAPS * C) + tap * C + c, mask=mask, other=0.0)
    tl.store(dw + (client * OC + o) * (TAPS * C) + c * TAPS + tap, total.to(dw.dtype.element_ty), mask=mask)
    if tl.program_id(1) == 0:
        every = tl.arange(0, BS)
        slope = tl.load(sums + (client * SUMS + every) * OC + o, mask=every < SUMS, other=0.0)
        tl.store(db + client * OC + o, tl.sum(slope, 0).to(db.dtype.element_ty))


@triton.jit
def _turn(x, y, sxn, BATCH: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Transpose the last two axes: y[n, e, b] = x[n, b, e]."""
    client = tl.program_id(2).to(tl.int64)
    e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (b < BATCH)[:, None] & (e < SIZE)[None, :]
    value = tl.load(x + client * sxn + b[:, None] * SIZE + e[None, :], mask=mask, other=0.0)
    tl.store(y + client * (BATCH * SIZE) + e[None, :] * BATCH + b[:, None], value, mask=mask)


def channels_last(x: Tensor) -> Tensor:
    """Lay out [n, B, C, H, W] with the channels innermost.

    It copies only where they are not.
    """
    inner = x.permute(0, 1, 3, 4, 2)
    return x if inner.is_contiguous() else inner.contiguous().permute(0, 1, 4, 2, 3)


def convolve(x: Tensor, w: Tensor, bias: Tensor | None, padding: Pair, precision: str) -> Tensor:
    """Convolve x [n, B, C, H, W] with w [n, O, C, kh, kw]: [n, B, O, Ho, Wo], all channels last."""
    n, batch, _, height, width = x.shape
    out, kernel = w.shape[1], (w.shape[3], w.shape[4])
    table = w.permute(0, 1, 3, 4, 2).contiguous()  # [n, O, kh, kw, C]: the patch innermost
    ho, wo = height + 2 * padding[0] - kernel[0] + 1, width + 2 * padding[1] - kernel[1] + 1
    y = torch.empty(n, batch, ho, wo, out, device=x.device, dtype=x.dtype).permute(0, 1, 4, 2, 3)
    launch_convolve(x, table, bias, y, kernel, padding, precision, (128, columns(out), 32), 4, 4)
    return y


def input_gradient(dy: Tensor, w: Tensor, padding: Pair, precision: str) -> Tensor:
    """Convolve dy, fully padded, with the weights turned round and their channels swapped."""
    turned = w.flip(3, 4).transpose(1, 2)
    return convolve(dy, turned, None, (w.shape[3] - 1 - padding[0], w.shape[4] - 1 - padding[1]), precision)


def weight_gradient(x: Tensor, dy: Tensor, kernel: Pair, padding: Pair, precision: str) -> tuple[Tensor, Tensor]:
    """Return dw [n, O, C, kh, kw] and db [n, O].

    For x [n, B, C, H, W] and dy [n, B, O, Ho, Wo].
    """
    n, batch, channels = x.shape[:3]
    out, ho, wo = dy.shape[2:]
    # Turning the operands costs a copy, which few channels do not repay; half precision needs no turning.
    inner = _images_last(dy) or (channels >= 16 and x.dtype == torch.float32)
    tile = (128 if channels * kernel[0] * kernel[1] > 128 else 64, columns(out), 64 if channels >= 16 else 32)
    tiles = triton.cdiv(kernel[0] * kernel[1] * channels, tile[0]) * triton.cdiv(out, tile[1])
    splits = shares(tiles * n, triton.cdiv(batch * ho * wo, 8 * tile[2]))
    if inner:
        x, dy = images_last(x), images_last(dy)
    else:
        x, dy = channels_last(x), channels_last(dy)
    dw, db = launch_weight_gradient(x, dy, kernel, padding, precision, tile, 4, 4 if tile[2] == 64 else 3, splits, inner)
    return add_shares(dw, db, x.dtype)


def shares(blocks: int, most: int) -> int:
    """Choose the number of shares of long sums.

    The fewest that keep all multiprocessors at work to the end.
    """

    def busy(share: int) -> float:
        return blocks * share / (MULTIPROCESSORS * -(-blocks * share // MULTIPROCESSORS))

    allowed = range(1, max(1, min(most, 32)) + 1)
    return next((s for s in allowed if busy(s) > 0.95), max(allowed, key=busy))


def add_shares(dw: Tensor, db: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Add the shares of dw and db in a fixed order.

    dw [n, S, O, kh, kw, C] and db [n, S', O] become dw [n, O, C, kh, kw] and db [n, O].
    """
    n, many, out, high, wide, channels = dw.shape
    total = torch.empty(n, out, channels, high, wide, device=dw.device, dtype=dtype)
    slope = torch.empty(n, out, device=dw.device, dtype=dtype)
    block = min(64, triton.next_power_of_2(channels))
    _add_shares[(n * out, triton.cdiv(channels, block))](
        dw, db, total, slope,
        OC=out, C=channels, TAPS=high * wide, SHARES=many, SUMS=db.shape[1],
        BT=triton.next_power_of_2(high * wide), BC=block, BS=triton.next_power_of_2(db.shape[1]),
    )  # fmt: skip
    return total, slope


def images_last(x: Tensor) -> Tensor:
    """Lay out [n, B, C, H, W] with the images innermost.

    The order in memory is [n, H, W, C, B].
    """
    if _images_last(x):
        return x
    x = channels_last(x)
    n, batch, channels, height, width = x.shape
    turned = torch.empty(n, height, width, channels, batch, device=x.device, dtype=x.dtype)
    size = height * width * channels
    _turn[(triton.cdiv(size, 64), triton.cdiv(batch, 64), n)](x, turned, x.stride(0), BATCH=batch, SIZE=size, BLOCK=64)
    return turned.permute(0, 4, 3, 1, 2)


def _images_last(x: Tensor) -> bool:
    return x.permute(0, 3, 4, 2, 1).is_contiguous()


def columns(out: int) -> int:
    return 64 if out >= 64 else max(16, triton.next_power_of_2(out))


def launch_convolve(
    x: Tensor, table: Tensor, bias: Tensor | None, y: Tensor, kernel: Pair, padding: Pair,
    precision: str, tile: tuple[int, int, int], warps: int, stages: int,
) -> None:  # fmt: skip
    """Launch the convolution with weights `table` [n, O, kh, kw, C].

    tile: positions, output channels and patch entries per block.
    """
    n, batch, channels, height, width = x.shape
    out, ho, wo = y.shape[2:]
    grid = (triton.cdiv(batch * ho * wo, tile[0]), triton.cdiv(out, tile[1]), n)
    _convolve[grid](
        x, table, table if bias is None else bias, y,
        x.stride(0), x.stride(1), x.stride(3), x.stride(4), x.stride(2), table.stride(0), 0 if bias is None else bias.stride(0),
        BATCH=batch, C=channels, H=height, W=width, OC=out, KH=kernel[0], KW=kernel[1], PH=padding[0], PW=padding[1],
        HO=ho, WO=wo, HAS_BIAS=bias is not None, PRECISION=precision, BM=tile[0], BN=tile[1], BK=tile[2],
        num_warps=warps, num_stages=stages,
    )  # fmt: skip


def launch_weight_gradient(
    x: Tensor, dy: Tensor, kernel: Pair, padding: Pair,
    precision: str, tile: tuple[int, int, int], warps: int, stages: int, splits: int, inner: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Launch the shares of dw [n, S, O, kh, kw, C] and db [n, S, O].

    tile: patch entries, output channels, summed entries.
    """
    n, batch, channels, height, width = x.shape
    out, ho, wo = dy.shape[2:]
    patch = kernel[0] * kernel[1] * channels
    dw = torch.empty(n, splits, out, *kernel, channels, device=x.device, dtype=torch.float32)
    db = torch.empty(n, splits, out, device=x.device, dtype=torch.float32)
    grid = (triton.cdiv(patch, tile[0]), triton.cdiv(out, tile[1]), n * splits)
    _weight_gradient[grid](
        x, dy, dw, db,
        BATCH=batch, C=channels, H=height, W=width, OC=out, KH=kernel[0], KW=kernel[1], PH=padding[0], PW=padding[1],
        HO=ho, WO=wo, SPLITS=splits, PRECISION=precision, INNER=inner, BK=tile[0], BN=tile[1], BM=tile[2],
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return dw, db
