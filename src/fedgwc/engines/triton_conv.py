"""Convolutions of many clients at once, each with its own weights, as implicit matrix products in Triton.

A cohort's convolution is `n` small independent ones. The library's way to batch them, one grouped convolution, reaches a few
percent of a GPU; here each client's convolution is a matrix product [positions, patch] x [patch, channels] whose left side is
gathered on the fly from channels-last images. Forward and input gradient are one kernel, the weight gradient another.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _convolve(
    x, w, bias, y,
    sxn, sxb, sxh, sxw, sxc, swn, sbn,
    BATCH: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OC: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y[n, b, ho, wo, o] = sum over (i, j, c) of x[n, b, ho + i - PH, wo + j - PW, c] * w[n, (i, j, c), o]."""
    client = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    wo, ho, b = m % WO, (m // WO) % HO, m // (WO * HO)
    x += client * sxn
    w += client * swn
    inside = m < BATCH * HO * WO
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, KH * KW * C, BK):
        k = start + tl.arange(0, BK)
        c, j, i = k % C, (k // C) % KW, k // (C * KW)
        h = ho[:, None] + i[None, :] - PH
        v = wo[:, None] + j[None, :] - PW
        there = inside[:, None] & (k < KH * KW * C)[None, :] & (h >= 0) & (h < H) & (v >= 0) & (v < W)
        patch = tl.load(x + b[:, None] * sxb + h * sxh + v * sxw + c[None, :] * sxc, mask=there, other=0.0)
        weight = tl.load(w + k[:, None] * OC + o[None, :], mask=(k < KH * KW * C)[:, None] & (o < OC)[None, :], other=0.0)
        acc = tl.dot(patch, weight, acc, input_precision=PRECISION)
    if HAS_BIAS:
        acc += tl.load(bias + client * sbn + o, mask=o < OC, other=0.0)[None, :].to(tl.float32)
    y += client * (BATCH * HO * WO * OC)
    tl.store(y + m[:, None] * OC + o[None, :], acc.to(y.dtype.element_ty), mask=inside[:, None] & (o < OC)[None, :])


@triton.jit
def _weight_gradient(
    x, dy, dw,
    sxn, sxb, sxh, sxw, sxc, sdn, sdm,
    BATCH: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OC: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    SPLITS: tl.constexpr, PRECISION: tl.constexpr,
    BK: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """dw[n, split, (i, j, c), o] = sum over a share of the positions m of x[n, patch m, (i, j, c)] * dy[n, m, o]."""
    part = tl.program_id(2)
    client = (part // SPLITS).to(tl.int64)
    split = part % SPLITS
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    c, j, i = k % C, (k // C) % KW, k // (C * KW)
    x += client * sxn
    dy += client * sdn
    M: tl.constexpr = BATCH * HO * WO
    BLOCKS: tl.constexpr = (M + BM - 1) // BM
    PER_SPLIT: tl.constexpr = (BLOCKS + SPLITS - 1) // SPLITS
    acc = tl.zeros((BK, BN), tl.float32)
    for block in range(PER_SPLIT):
        m = (split * PER_SPLIT + block) * BM + tl.arange(0, BM)
        wo, ho, b = m % WO, (m // WO) % HO, m // (WO * HO)
        h = ho[None, :] + i[:, None] - PH
        v = wo[None, :] + j[:, None] - PW
        there = (m < M)[None, :] & (k < KH * KW * C)[:, None] & (h >= 0) & (h < H) & (v >= 0) & (v < W)
        patch = tl.load(x + b[None, :] * sxb + h * sxh + v * sxw + c[:, None] * sxc, mask=there, other=0.0)
        slope = tl.load(dy + m[:, None].to(tl.int64) * sdm + o[None, :], mask=(m < M)[:, None] & (o < OC)[None, :], other=0.0)
        acc = tl.dot(patch, slope, acc, input_precision=PRECISION)
    dw += part.to(tl.int64) * (KH * KW * C * OC)
    tl.store(dw + k[:, None] * OC + o[None, :], acc, mask=(k < KH * KW * C)[:, None] & (o < OC)[None, :])


def channels_last(x: Tensor) -> Tensor:
    """[n, B, C, H, W] with the channels innermost in memory, the rest in order."""
    return x.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)


def convolve(x: Tensor, w: Tensor, bias: Tensor | None, padding: tuple[int, int], precision: str) -> Tensor:
    """x [n, B, C, H, W], w [n, O, C, kh, kw], bias [n, O] -> [n, B, O, Ho, Wo], channels innermost in memory."""
    n, batch, channels, height, width = x.shape
    out, kernel = w.shape[1], (w.shape[3], w.shape[4])
    table = w.permute(0, 3, 4, 2, 1).contiguous()  # [n, kh, kw, C, O]: the right side of the product, coalesced
    ho, wo = height + 2 * padding[0] - kernel[0] + 1, width + 2 * padding[1] - kernel[1] + 1
    y = torch.empty(n, batch, ho, wo, out, device=x.device, dtype=x.dtype).permute(0, 1, 4, 2, 3)
    launch_convolve(x, table, bias, y, kernel, padding, precision, (128, _columns(out), 32 if channels < 32 else 64), 4, 3)
    return y


def input_gradient(dy: Tensor, w: Tensor, padding: tuple[int, int], precision: str) -> Tensor:
    """The gradient of a convolution is one: of dy, fully padded, with the weights turned round and their channels swapped."""
    turned = w.flip(3, 4).transpose(1, 2)
    return convolve(dy, turned, None, (w.shape[3] - 1 - padding[0], w.shape[4] - 1 - padding[1]), precision)


def weight_gradient(x: Tensor, dy: Tensor, kernel: tuple[int, int], padding: tuple[int, int], precision: str) -> Tensor:
    """x [n, B, C, H, W], dy [n, B, O, Ho, Wo] (channels innermost) -> [n, O, C, kh, kw]."""
    n, batch, channels = x.shape[:3]
    out, ho, wo = dy.shape[2:]
    bk, bn, bm = 64, _columns(out), 64
    tiles = triton.cdiv(kernel[0] * kernel[1] * channels, bk) * triton.cdiv(out, bn)
    # Long sums over positions are cut into shares, enough to occupy the card, and added in a fixed order.
    splits = max(1, min(triton.cdiv(528, tiles * n), triton.cdiv(batch * ho * wo, 8 * bm)))
    dw = launch_weight_gradient(x, dy, kernel, padding, precision, (bk, bn, bm), 4, 3, splits)
    return dw.view(n, *kernel, channels, out).permute(0, 4, 3, 1, 2).to(x.dtype)


def _columns(out: int) -> int:
    return 64 if out >= 64 else max(16, triton.next_power_of_2(out))


def launch_convolve(
    x: Tensor, table: Tensor, bias: Tensor | None, y: Tensor, kernel: tuple[int, int], padding: tuple[int, int],
    precision: str, tile: tuple[int, int, int], warps: int, stages: int,
) -> None:  # fmt: skip
    """y from x and the weights as `table` [n, kh, kw, C, O]; tile: positions, output channels and patch entries per block."""
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
    x: Tensor, dy: Tensor, kernel: tuple[int, int], padding: tuple[int, int],
    precision: str, tile: tuple[int, int, int], warps: int, stages: int, splits: int,
) -> Tensor:  # fmt: skip
    """[n, kh * kw * C, O]; tile: patch entries, output channels and positions per block."""
    n, batch, channels, height, width = x.shape
    out, ho, wo = dy.shape[2:]
    patch = kernel[0] * kernel[1] * channels
    dw = torch.empty(n, splits, patch, out, device=x.device, dtype=torch.float32)
    grid = (triton.cdiv(patch, tile[0]), triton.cdiv(out, tile[1]), n * splits)
    _weight_gradient[grid](
        x, dy, dw,
        x.stride(0), x.stride(1), x.stride(3), x.stride(4), x.stride(2), dy.stride(0), dy.stride(4),
        BATCH=batch, C=channels, H=height, W=width, OC=out, KH=kernel[0], KW=kernel[1], PH=padding[0], PW=padding[1],
        HO=ho, WO=wo, SPLITS=splits, PRECISION=precision, BK=tile[0], BN=tile[1], BM=tile[2],
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return dw.sum(1) if splits > 1 else dw[:, 0]
