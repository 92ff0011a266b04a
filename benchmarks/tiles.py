"""Which block sizes suit the stacked convolution's kernels on this card."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import triton

from fedgwc.engines import triton_conv as tc

SHAPES = {"conv1": (10, 64, 3, 32, 64), "conv2": (10, 64, 64, 14, 64)}
NO_PADDING = (0, 0)


def best(name: str, flops: int, run: Callable[..., Any], settings: Iterable[tuple[Any, ...]]) -> None:
    results = []
    for setting in settings:
        try:
            t = triton.testing.do_bench(partial(run, *setting), warmup=5, rep=20)
        except Exception as error:  # a tile that does not fit this card is not an answer
            print(name, setting, type(error).__name__)
            continue
        results.append((round(t, 4), setting, f"{flops / t / 1e9:.0f} TFLOP/s"))
    print(name, *sorted(results)[:6], sep="\n  ", flush=True)


def main() -> None:
    for name, (n, batch, channels, size, out) in SHAPES.items():
        x = tc.channels_last(torch.randn(n, batch, channels, size, size, device="cuda"))
        w = torch.randn(n, out, channels, 5, 5, device="cuda")
        y = tc.convolve(x, w, None, NO_PADDING, "tf32")
        table = w.permute(0, 1, 3, 4, 2).contiguous()
        flops = 2 * n * batch * out * channels * 25 * (size - 4) ** 2
        forward = partial(tc.launch_convolve, x, table, None, y, (5, 5), NO_PADDING, "tf32")
        tiles = [(128, 64, 32), (256, 64, 32), (128, 64, 64)]
        best(f"{name} forward", flops, forward, itertools.product(tiles, (4, 8), (3, 4)))
        for inner in (False, True):
            left, right = (tc.images_last(x), tc.images_last(y)) if inner else (x, y)
            backward = partial(tc.launch_weight_gradient, left, right, (5, 5), NO_PADDING, "tf32")
            tiles = [(64, 64, 32), (128, 64, 32), (128, 64, 64)]
            shares = (8, 32) if channels < 16 else (1, 3)
            best(
                f"{name} weight gradient, inner={inner}",
                flops,
                backward,
                itertools.product(tiles, (4, 8), (3, 4), shares, (inner,)),
            )
        turning = [round(triton.testing.do_bench(partial(tc.images_last, t)), 4) for t in (x, y)]
        print("turning x and dy takes", turning)


if __name__ == "__main__":
    main()
