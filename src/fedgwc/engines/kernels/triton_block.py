"""Convolution, 2x2 max-pooling and ReLU of many clients, as one kernel.

With their gradients.

A tile holds the four positions of a pooling square for some images of one client, so that the largest of four is taken where
it was computed: what pooling throws away never reaches memory. One byte per output says which of the four it was, or 4 if
ReLU cut it off; the gradients read that byte. Positions are the same for all rows of a tile, so a row of the kernel is one
run of memory (channels last) and taps outside the image can be skipped.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedgwc.engines.kernels.triton_conv import Pair, add_shares, channels_last, columns, images_last, shares, weight_gradient

CUT = tl.constexpr(4)  # in the place of an index: no slope flows back


@triton.jit
def _larger(value, index, other, other_index):
    """Return the larger of two values, with positions. NaN wins and the first of equals stays, as in PyTorch."""
    take = (other > value) | (other != other)
    return tl.where(take, other, value), tl.where(take, other_index, index)


@triton.jit
def _forward(
    x, w, bias, y, turned, where, sxn, swn, sbn,
    BATCH: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OC: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, HP: tl.constexpr, WP: tl.constexpr,
    HAS_BIAS: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    BB: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute y[n, b, hp, wp, o], in two layouts, and the maxima's positions.

    Again as turned[n, hp, wp, o, b], and where, like that; x [n, b, h, w, c], w [n, o, (i, j, c)].
    """
    client = tl.program_id(2).to(tl.int64)
    position = tl.program_id(0) // (BATCH // BB)
    images = tl.program_id(0) % (BATCH // BB) * BB
    q = tl.arange(0, 4 * BB) // BB
    b = images + tl.arange(0, 4 * BB) % BB
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    h = position // WP * 2 + q // 2 - PH
    v = position % WP * 2 + q % 2 - PW
    x += client * sxn
    w += client * swn
    RUN: tl.constexpr = KW * C  # of memory, in a row of the kernel
    CHUNKS: tl.constexpr = (RUN + BK - 1) // BK
    base = b * (H * W * C) + (h * W + v) * C
    acc = tl.zeros((4 * BB, BN), tl.float32)
    for step in range(KH * CHUNKS):  # never over the end of a row: neighbours in a tile must be neighbours in memory
        i, run = step // CHUNKS, step % CHUNKS * BK + tl.arange(0, BK)
        there = (run < RUN)[None, :] & (q >= 0)[:, None]
        if PH > 0 or PW > 0:
            column = v[:, None] + (run // C)[None, :]
            there = there & (h + i >= 0)[:, None] & (h + i < H)[:, None] & (column >= 0) & (column < W)
        patch = tl.load(x + base[:, None] + (i * (W * C) + run)[None, :], mask=there, other=0.0)
        real = (o < OC)[:, None] & (run < RUN)[None, :]
        weight = tl.load(w + o[:, None] * (KH * RUN) + (i * RUN + run)[None, :], mask=real, other=0.0)
        acc = tl.dot(patch, weight.T, acc, input_precision=PRECISION)
    which = tl.arange(0, 4)[:, None, None] + tl.zeros((4, BB, BN), tl.int32)
    best, index = tl.reduce((tl.reshape(acc, (4, BB, BN)), which), 0, _larger)
    if HAS_BIAS:
        best += tl.load(bias + client * sbn + o, mask=o < OC, other=0.0)[None, :].to(tl.float32)
    if RELU:
        index = tl.where(best <= 0, CUT, index)
        best = tl.where(best <= 0, 0.0, best)
    b = (images + tl.arange(0, BB))[:, None]
    mask = (o < OC)[None, :] & (b >= 0)
    size: tl.constexpr = BATCH * HP * WP * OC
    best = best.to(y.dtype.element_ty)
    tl.store(y + client * size + (b * (HP * WP) + position) * OC + o[None, :], best, mask=mask)
    across = client * size + (position * OC + o[None, :]) * BATCH + b
    tl.store(turned + across, best, mask=mask)
    tl.store(where + across, index.to(tl.int8), mask=mask)


@triton.jit
def _weight_gradient(
    x, dy, where, dw, db,
    BATCH: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OC: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, HP: tl.constexpr, WP: tl.constexpr,
    SPLITS: tl.constexpr, PRECISION: tl.constexpr,
    BB: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Sum dw and db over a share of the squares.

    dw[n, split, q, o, (i, j, c)] and db[n, split, o].

    x is [n, h, w, c, b], dy and where [n, hp, wp, o, b]. A square sees KH + 1 rows of KW + 1 pixels, loaded once;
    position q of the four uses those from (q // 2, q % 2) on.
    """
    part = tl.program_id(2)
    client = (part // SPLITS).to(tl.int64)
    split = part % SPLITS
    RUN: tl.constexpr = (KW + 1) * C
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    i, run = k // RUN, k % RUN
    x += client * (BATCH * H * W * C)
    dy += client * (BATCH * HP * WP * OC)
    where += client * (BATCH * HP * WP * OC)
    four = tl.arange(0, 4)[:, None, None]
    acc = tl.zeros((BK, 4 * BN), tl.float32)
    sums = tl.zeros((BN,), tl.float32)
    IMAGES: tl.constexpr = BATCH // BB
    BLOCKS: tl.constexpr = HP * WP * IMAGES
    PER_SPLIT: tl.constexpr = (BLOCKS + SPLITS - 1) // SPLITS
    for block in range(split * PER_SPLIT, tl.minimum((split + 1) * PER_SPLIT, BLOCKS)):
        position = block // IMAGES
        b = block % IMAGES * BB + tl.arange(0, BB)
        source = (position * OC + o)[:, None] * BATCH + b[None, :]
        slope = tl.load(dy + source, mask=(o < OC)[:, None], other=0.0)
        index = tl.load(where + source, mask=(o < OC)[:, None], other=CUT)
        h, v = position // WP * 2 - PH, position % WP * 2 - PW
        row, column = h + i, v + run // C
        fits = (i <= KH) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        patch = tl.load(x + ((row * W + v) * C + run)[:, None] * BATCH + b[None, :], mask=fits[:, None], other=0.0)
        mine = tl.reshape(tl.where(index[None, :, :] == four, slope[None, :, :], 0.0), (4 * BN, BB))
        acc = tl.dot(patch, mine.T, acc, input_precision=PRECISION)
        sums += tl.sum(tl.where(index < CUT, slope, 0.0).to(tl.float32), 1)
    dw += part.to(tl.int64) * (4 * OC * KH * KW * C)
    q = tl.arange(0, 4 * BN)[None, :] // BN
    channel = tl.program_id(1) * BN + tl.arange(0, 4 * BN)[None, :] % BN
    at, along = i[:, None] - q // 2, run[:, None] - q % 2 * C
    mine = (at >= 0) & (at < KH) & (along >= 0) & (along < KW * C) & (channel < OC)
    tl.store(dw + (q * OC + channel) * (KH * KW * C) + at * (KW * C) + along, acc, mask=mine)
    if tl.program_id(0) == 0:
        tl.store(db + part * OC + o, sums, mask=o < OC)


@triton.jit
def _unpool(
    dy, where, last, turned, sn, sb, sp, so,
    BATCH: tl.constexpr, OC: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, WP: tl.constexpr,
    BB: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Send gradients back through the pooling, in both layouts. last [n, b, h, w, o] and turned [n, h, w, o, b]."""
    client = tl.program_id(2).to(tl.int64)
    position = tl.program_id(0)
    b = (tl.program_id(1) % (BATCH // BB) * BB + tl.arange(0, BB))[:, None]
    o = (tl.program_id(1) // (BATCH // BB) * BN + tl.arange(0, BN))[None, :]
    mask = (b >= 0) & (o < OC)
    size: tl.constexpr = BATCH * H * W * OC
    slope = tl.load(dy + client * sn + b * sb + position * sp + o * so, mask=mask, other=0.0)
    index = tl.load(where + client * (BATCH * HP * WP * OC) + (position * OC + o) * BATCH + b, mask=mask, other=4)
    for q in tl.static_range(4):
        at = (position // WP * 2 + q // 2) * W + position % WP * 2 + q % 2
        value = tl.where(index == q, slope, 0.0).to(last.dtype.element_ty)
        tl.store(last + client * size + (b * (H * W) + at) * OC + o, value, mask=mask)
        tl.store(turned + client * size + (at * OC + o) * BATCH + b, value, mask=mask)


@triton.jit
def _input_gradient(
    dy, w, dx,
    BATCH: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OC: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    PRECISION: tl.constexpr, BB: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute dx[n, h, w, c, b] by the transposed convolution.

    The sum over taps inside the image of dy[n, b, h + PH - i, w + PW - j, o] * w[n, c, (i, j, o)].
    """
    client = tl.program_id(2).to(tl.int64)
    square = tl.program_id(0) // (BATCH // BB)
    WS: tl.constexpr = (W + 1) // 2
    top, left = square // WS * 2, square % WS * 2
    q = tl.arange(0, 4 * BB) // BB
    b = tl.program_id(0) % (BATCH // BB) * BB + tl.arange(0, 4 * BB) % BB
    c = tl.program_id(1) * BN + tl.arange(0, BN)
    h, v = top + q // 2, left + q % 2
    dy += client * (BATCH * HO * WO * OC)
    w += client * (C * KH * KW * OC)
    # Taps that reach the image from any of the four positions.
    first_i = tl.maximum(top + PH - HO + 1, 0)
    first_j = tl.maximum(left + PW - WO + 1, 0)
    many_i = tl.minimum(top + 1 + PH, KH - 1) - first_i + 1
    many_j = tl.minimum(left + 1 + PW, KW - 1) - first_j + 1
    CHUNKS: tl.constexpr = (OC + BK - 1) // BK
    acc = tl.zeros((4 * BB, BN), tl.float32)
    for step in range(many_i * many_j * CHUNKS):
        tap = step // CHUNKS
        i, j = first_i + tap // many_j, first_j + tap % many_j
        o = step % CHUNKS * BK + tl.arange(0, BK)
        ho, wo = h + (PH - i), v + (PW - j)
        inside = (ho >= 0) & (ho < HO) & (wo >= 0) & (wo < WO)
        real = (o < OC)[None, :]
        slope = tl.load(dy + ((b * HO + ho) * WO + wo)[:, None] * OC + o[None, :], mask=inside[:, None] & real, other=0.0)
        tap_of = w + c[:, None] * (KH * KW * OC) + ((i * KW + j) * OC + o)[None, :]
        weight = tl.load(tap_of, mask=(c < C)[:, None] & real, other=0.0)
        acc = tl.dot(slope, weight.T, acc, input_precision=PRECISION)
    target = ((h * W + v)[:, None] * C + c[None, :]) * BATCH + b[:, None]
    mask = ((h < H) & (v < W))[:, None] & (c < C)[None, :]
    tl.store(dx + client * (BATCH * H * W * C) + target, acc.to(dx.dtype.element_ty), mask=mask)


def fits(batch: int) -> bool:
    """Tell whether a batch fills tiles of sixteen images."""
    return batch % 16 == 0


def _images(batch: int) -> int:
    """Return how many images a tile holds."""
    return next(size for size in (64, 32, 16) if batch % size == 0)


def forward(
    x: Tensor, w: Tensor, bias: Tensor | None, padding: Pair, relu: bool, precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Convolve x [n, B, C, H, W] with w [n, O, C, kh, kw], and pool.

    Returns y [n, B, O, Hp, Wp], twice, and each maximum's position in its square.

    The first y has the channels last, the others the images.
    """
    table = w.permute(0, 1, 3, 4, 2).contiguous()  # [n, O, kh, kw, C]: the patch innermost
    few = x.shape[2] < 16  # channels: rows of the kernel are short, and loads wait rather than products
    tile = (_images(x.shape[1]), columns(w.shape[1]), 16 if few else 32)
    return launch_forward(channels_last(x), table, bias, padding, relu, precision, tile, 4, 2 if few else 4)


def gradients(
    x: Tensor, turned: Tensor | None, w: Tensor, dy: Tensor, where: Tensor, padding: Pair, precision: str, wants_input: bool
) -> tuple[Tensor, ...]:
    """Return dx, if wanted, dw and db.

    dx [n, B, C, H, W], dw [n, O, C, kh, kw] and db [n, O] for the pooled gradients dy [n, B, O, Hp, Wp].

    `turned` is x with the images last, if somebody has it already.
    """
    kernel = (w.shape[3], w.shape[4])
    turned = images_last(x) if turned is None else turned
    if not wants_input:
        tile = (min(32, _images(x.shape[1])), columns(w.shape[1]), 128)
        blocks = triton.cdiv((kernel[0] + 1) * (kernel[1] + 1) * x.shape[2], tile[2]) * triton.cdiv(w.shape[1], tile[1]) * len(x)
        splits = shares(blocks, where.shape[3] * where.shape[4])
        dw, db = launch_weight_gradient_of_squares(turned, images_last(dy), where, kernel, padding, precision, tile, 8, 3, splits)
        return add_shares(dw, db, x.dtype)
    last, slopes = unpool(dy, where, _size(x, kernel, padding))
    table = w.permute(0, 2, 3, 4, 1).contiguous()  # [n, C, kh, kw, O]
    tile = (min(32, _images(x.shape[1])), columns(x.shape[2]), 32)
    dx = launch_input_gradient(last, table, (x.shape[3], x.shape[4]), padding, precision, tile, 4, 4)
    return dx, *weight_gradient(turned, slopes, kernel, padding, precision)


def _size(x: Tensor, kernel: Pair, padding: Pair) -> Pair:
    """Return the height and width of the convolution's result."""
    return x.shape[3] + 2 * padding[0] - kernel[0] + 1, x.shape[4] + 2 * padding[1] - kernel[1] + 1


def launch_forward(
    x: Tensor, table: Tensor, bias: Tensor | None, padding: Pair, relu: bool,
    precision: str, tile: tuple[int, int, int], warps: int, stages: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    n, batch, channels, height, width = x.shape
    out, kernel = table.shape[1], (table.shape[2], table.shape[3])
    high, wide = (side // 2 for side in _size(x, kernel, padding))
    y = torch.empty(n, batch, high, wide, out, device=x.device, dtype=x.dtype)
    turned = torch.empty(n, high, wide, out, batch, device=x.device, dtype=x.dtype)
    where = torch.empty_like(turned, dtype=torch.int8)
    grid = (high * wide * batch // tile[0], triton.cdiv(out, tile[1]), n)
    _forward[grid](
        x, table, table if bias is None else bias, y, turned, where,
        x.stride(0), table.stride(0), 0 if bias is None else bias.stride(0),
        BATCH=batch, C=channels, H=height, W=width, OC=out, KH=kernel[0], KW=kernel[1], PH=padding[0], PW=padding[1],
        HP=high, WP=wide, HAS_BIAS=bias is not None, RELU=relu, PRECISION=precision,
        BB=tile[0], BN=tile[1], BK=tile[2], num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return y.permute(0, 1, 4, 2, 3), turned.permute(0, 4, 3, 1, 2), where.permute(0, 4, 3, 1, 2)


def launch_weight_gradient_of_squares(
    x: Tensor, dy: Tensor, where: Tensor, kernel: Pair, padding: Pair,
    precision: str, tile: tuple[int, int, int], warps: int, stages: int, splits: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    n, batch, channels, height, width = x.shape
    out, high, wide = dy.shape[2:]
    patch = (kernel[0] + 1) * (kernel[1] + 1) * channels
    dw = torch.empty(n, splits * 4, out, *kernel, channels, device=x.device)
    db = torch.empty(n, splits, out, device=x.device)
    grid = (triton.cdiv(patch, tile[2]), triton.cdiv(out, tile[1]), n * splits)
    _weight_gradient[grid](
        x, dy, where, dw, db,
        BATCH=batch, C=channels, H=height, W=width, OC=out, KH=kernel[0], KW=kernel[1], PH=padding[0], PW=padding[1],
        HP=high, WP=wide, SPLITS=splits, PRECISION=precision, BB=tile[0], BN=tile[1], BK=tile[2],
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return dw, db


def launch_input_gradient(
    dy: Tensor, table: Tensor, size: Pair, padding: Pair,
    precision: str, tile: tuple[int, int, int], warps: int, stages: int,
) -> Tensor:  # fmt: skip
    """Return dx [n, B, C, H, W], images last.

    For dy [n, B, O, Ho, Wo], channels last, and weights `table` [n, C, kh, kw, O].
    """
    n, batch, out, ho, wo = dy.shape
    channels, kernel = table.shape[1], (table.shape[2], table.shape[3])
    dx = torch.empty(n, *size, channels, batch, device=dy.device, dtype=dy.dtype)
    squares = triton.cdiv(size[0], 2) * triton.cdiv(size[1], 2)
    grid = (squares * batch // tile[0], triton.cdiv(channels, tile[1]), n)
    _input_gradient[grid](
        dy, table, dx,
        BATCH=batch, C=channels, H=size[0], W=size[1], OC=out, KH=kernel[0], KW=kernel[1], PH=padding[0], PW=padding[1],
        HO=ho, WO=wo, PRECISION=precision, BB=tile[0], BN=tile[1], BK=tile[2], num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return dx.permute(0, 4, 3, 1, 2)


def unpool(dy: Tensor, where: Tensor, size: Pair) -> tuple[Tensor, Tensor]:
    """Put pooled slopes back where they came from, twice: channels last and images last."""
    n, batch, out, high, wide = dy.shape
    make = torch.empty if size[0] % 2 == size[1] % 2 == 0 else torch.zeros  # an odd border has no square to write its zeros
    last = make(n, batch, *size, out, device=dy.device, dtype=dy.dtype)
    turned = make(n, *size, out, batch, device=dy.device, dtype=dy.dtype)
    flat = dy.flatten(3)  # [n, B, O, P]
    images, wide_tile = min(32, _images(batch)), min(32, columns(out))
    grid = (high * wide, batch // images * triton.cdiv(out, wide_tile), n)
    _unpool[grid](
        flat, where, last, turned, flat.stride(0), flat.stride(1), flat.stride(3), flat.stride(2),
        BATCH=batch, OC=out, H=size[0], W=size[1], HP=high, WP=wide, BB=images, BN=wide_tile,
    )  # fmt: skip
    return last.permute(0, 1, 4, 2, 3), turned.permute(0, 4, 3, 1, 2)
