"""Which block sizes suit the kernels of the paper's CNN on this card: `python -m benchmarks.tiles [clients [kernel]]`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
import triton

from fedgwc.engines.kernels import triton_block as tb
from fedgwc.engines.kernels import triton_conv as tc

NONE = (0, 0)  # padding
FIVE = (5, 5)  # kernel
Variant = tuple[str, tuple[Any, ...], Callable[[], Any]]


def variants(n: int, kernel: str) -> Iterator[Variant]:
    """Of the kernels whose name starts with `kernel`."""
    return (variant for variant in all_variants(n) if variant[0].startswith(kernel))


def all_variants(n: int) -> Iterator[Variant]:
    """(kernel, its tile, warps, stages and shares, the call)."""
    images = torch.randn(n, 64, 32, 32, 3, device="cuda").permute(0, 1, 4, 2, 3)
    wide = F.pad(images.permute(0, 1, 3, 4, 2), (0, 1)).permute(0, 1, 4, 2, 3)  # a fourth channel: 16 bytes at once
    pooled = torch.randn(n, 64, 14, 14, 64, device="cuda").permute(0, 1, 4, 2, 3)
    slopes = torch.randn(n, 64, 10, 10, 64, device="cuda").permute(0, 1, 4, 2, 3)
    first, padded, second = (torch.randn(n, 64, 5, 5, c, device="cuda") for c in (3, 4, 64))
    bias = torch.randn(n, 64, device="cuda")
    for name, x, w, bk in (
        ("first", images, first, 16),
        ("first", images, first, 32),
        ("first", wide, padded, 32),
        ("second", pooled, second, 32),
    ):
        for (bb, warps), stages in product(((64, 4), (64, 8), (32, 4)), (1, 2, 3, 4)):
            how = ((bb, 64, bk), warps, stages)
            yield f"{name} forward", (x.shape[2], *how), partial(tb.launch_forward, x, w, bias, NONE, True, "tf32", *how)
    for (bb, warps), stages in product(((64, 4), (64, 8), (32, 4), (16, 4)), (2, 3, 4)):
        how = ((bb, 64, 32), warps, stages)
        yield "second input", how, partial(tb.launch_input_gradient, slopes, second, (14, 14), NONE, "tf32", *how)
    where = tb.launch_forward(images, first, bias, NONE, True, "tf32", (64, 64, 16), 4, 2)[2]
    left, right = tc.images_last(images), tc.images_last(pooled)
    for (bb, bk, warps), stages in product(((64, 128, 8), (32, 128, 8), (32, 64, 4), (64, 64, 4)), (2, 3, 4)):
        for shares in (max(1, 264 // n // (2 if warps == 4 else 1) // f) for f in (1, 2)):
            shared = ((bb, 64, bk), warps, stages, shares)
            call = partial(tb.launch_weight_gradient_of_squares, left, right, where, FIVE, NONE, "tf32", *shared)
            yield "first weights", shared, call
    turned = tc.images_last(slopes)
    for tile, warps, stages, shares in product(((128, 64, 64), (128, 64, 32), (256, 64, 32)), (4, 8), (3, 4), (1, 2, 3)):
        shared = (tile, warps, stages, shares)
        call = partial(tc.launch_weight_gradient, right, turned, FIVE, NONE, "tf32", *shared, True)
        yield "second weights", shared, call
    yield "turn pooled", (), partial(tc.images_last, pooled)
    yield "turn images", (), partial(tc.images_last, images)
    where_second = tb.launch_forward(pooled, second, bias, NONE, True, "tf32", (64, 64, 32), 4, 4)[2]
    yield "unpool", (), partial(tb.unpool, torch.randn(n, 64, 64, 5, 5, device="cuda"), where_second, (10, 10))
    dw, db = tb.launch_weight_gradient_of_squares(left, right, where, FIVE, NONE, "tf32", (32, 64, 64), 4, 3, 13)
    yield "add shares of first", (), partial(tc.add_shares, dw, db, torch.float32)
    dw, db = tc.launch_weight_gradient(right, turned, FIVE, NONE, "tf32", (128, 64, 64), 4, 4, 2, True)
    yield "add shares of second", (), partial(tc.add_shares, dw, db, torch.float32)


def compile_share(kernel: str, rank: int, size: int) -> None:
    for i, (_, _, call) in enumerate(variants(1, kernel)):
        if i % size == rank:
            try:
                call()
            except Exception:  # noqa: S112 (a tile that does not fit this card is not an answer; `main` says so)
                continue


def main() -> None:
    n, kernel = int(sys.argv[1]) if len(sys.argv) > 1 else 10, sys.argv[2] if len(sys.argv) > 2 else ""
    with ProcessPoolExecutor(14, mp_context=get_context("spawn")) as pool:  # compiling takes longer than measuring
        list(pool.map(partial(compile_share, kernel, size=14), range(14)))
    results: dict[str, list[tuple[float, tuple[Any, ...]]]] = {}
    for name, how, call in variants(n, kernel):
        try:
            call()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(10):
                    call()
            t = triton.testing.do_bench(graph.replay, warmup=2, rep=10) / 10
        except Exception as error:
            print(name, how, type(error).__name__)
            continue
        results.setdefault(name, []).append((round(1e3 * t, 1), how))
    for name, times in results.items():
        print(name, *sorted(times)[:7], sep="  ", flush=True)


if __name__ == "__main__":
    main()
