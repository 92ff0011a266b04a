"""Random numbers as a function of their purpose.

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

Integers = TypeVar("Integers", Tensor, int)

GOLDEN, A, B = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
WORD = (1 << 64) - 1


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x


_GOLDEN, _A, _B = map(_signed, (GOLDEN, A, B))


def _fold(z: Integers, k: int) -> Integers:
    return z ^ ((z >> k) & (WORD >> k))  # int64 is shifted arithmetically; the mask makes it logical


def mix(z: Integers) -> Integers:
    """Map int64 one to one to numbers that look random.

    For a Python integer, which does not wrap around, only the lowest 64 bits count.
    """
    z = _fold(z + _GOLDEN, 30) * _A
    return _fold(_fold(z, 27) * _B, 31)


def mix_numpy(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix a handful of numbers in numpy.

    It takes a sixth of torch's time, and unsigned numbers need no mask.
    """
    u = np.uint64  # Python's integers would be converted every time
    z = z + u(GOLDEN)
    z = (z ^ (z >> u(30))) * u(A)
    z = (z ^ (z >> u(27))) * u(B)
    return z ^ (z >> u(31))


def keys(seed: int, clients: NDArray[np.int64]) -> Tensor:
    """Draw one key per client and round: [n], on the CPU."""
    mixed = mix_numpy(clients.view(np.uint64) ^ np.uint64(mix(seed) & WORD))
    return torch.from_numpy(mixed.view(np.int64))


def draw(key: Tensor, counter: Tensor) -> Tensor:
    """Draw an int64 at `counter` of each key's stream.

    The two broadcast.
    """
    return mix(key ^ mix(counter))


def integers(key: Tensor, counter: Tensor, n: int) -> Tensor:
    """Draw uniform integers in 0..n-1.

    n must be far below 2^32 (the bias is at most n / 2^32).
    """
    return (((draw(key, counter) >> 32) & 0xFFFFFFFF) * n) >> 32


def permutations(key: Tensor, epochs: int, sizes: Tensor, longest: int) -> Tensor:
    """Draw a shuffle for each client and epoch: [n, epochs, longest].

    A row holds a permutation of 0..size-1, then the positions beyond the client's size.
    """
    position = torch.arange(longest, device=key.device)
    epoch = torch.arange(epochs, device=key.device)[:, None]
    order = draw(key.view(-1, 1, 1), (epoch << 32) | position)  # [n, epochs, longest]
    lowest, highest = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
    least = torch.where(position < sizes.view(-1, 1, 1), lowest, highest)
    return order.maximum(least).argsort(dim=-1, stable=True)
