"""Random numbers that are a function of what they are for.

A client's minibatches and augmentations depend on (seed, client, counter) alone, so every engine, on every device and in
any company, draws the same ones; and a whole cohort's draws are one stacked expression that a CUDA graph can replay.
The mixing function is SplitMix64 (Steele, Lea and Flood, 2014) on int64 with wrap-around.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Integers = TypeVar("Integers", Tensor, NDArray[np.int64])


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x


_GOLDEN, _A, _B = _signed(0x9E3779B97F4A7C15), _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def _fold(z: Integers, k: int) -> Integers:
    return z ^ ((z >> k) & ((1 << (64 - k)) - 1))  # int64 is shifted arithmetically; the mask makes it logical


def mix(z: Integers) -> Integers:
    """A bijection of int64 that looks random."""
    z = _fold(z + _GOLDEN, 30) * _A
    return _fold(_fold(z, 27) * _B, 31)


def keys(seed: int, clients: NDArray[np.int64]) -> Tensor:
    """[n], on the CPU: one key per client and round."""
    return torch.from_numpy(mix(mix(np.array([seed])) ^ clients))  # a handful of numbers: numpy takes a third of torch's time


def draw(key: Tensor, counter: Tensor) -> Tensor:
    """Random int64 at `counter` of each key's stream; the two broadcast."""
    return mix(key ^ mix(counter))


def integers(key: Tensor, counter: Tensor, n: int) -> Tensor:
    """Uniform in 0..n-1, for n far below 2^32 (the bias is at most n / 2^32)."""
    return (((draw(key, counter) >> 32) & 0xFFFFFFFF) * n) >> 32


def permutations(key: Tensor, epochs: int, sizes: Tensor, longest: int) -> Tensor:
    """[n, epochs, longest]: for each client and epoch a shuffle of 0..size-1, then the places past its size."""
    place = torch.arange(longest, device=key.device)
    epoch = torch.arange(epochs, device=key.device)[:, None]
    order = draw(key.view(-1, 1, 1), (epoch << 32) | place)  # [n, epochs, longest]
    lowest, highest = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
    least = torch.where(place < sizes.view(-1, 1, 1), lowest, highest)
    return order.maximum(least).argsort(dim=-1, stable=True)
