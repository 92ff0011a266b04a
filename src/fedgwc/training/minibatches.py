"""Minibatches of a cohort as one stacked expression."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedgwc.core import random
from fedgwc.core.work import LocalTraining


@dataclass(frozen=True)
class Bounds:
    """Shapes that a cohort's minibatches need."""

    steps: int
    epochs: int
    longest: int  # samples of the largest client
    width: int  # samples of the largest batch
    ragged: bool  # batches are padded, or some clients make fewer steps

    @classmethod
    def of(cls, local: LocalTraining, sizes: Tensor) -> Bounds:
        """Measure the shapes for clients of these sizes [n]."""
        steps, widths = local.step_counts(sizes), local.batch_sizes(sizes)
        most, width = int(steps.max()), int(widths.max())
        even = int(widths.min()) == width and int(steps.min()) == most
        return cls(most, -(-most // int((sizes // widths).min())), int(sizes.max()), width, not even)


@dataclass(frozen=True)
class Minibatches:
    """Samples of each client in each step, numbered within the client."""

    places: Tensor  # [n, S, B] numbers in 0..size-1
    weights: Tensor  # [n, S, B] 1 / (real samples of the step), 0 where padded or past the client's last step
    steps: Tensor  # [n]


def minibatches(local: LocalTraining, sizes: Tensor, keys: Tensor, bounds: Bounds | None = None) -> Minibatches:
    """Draw all minibatches of a cohort, of sizes and keys [n].

    `bounds`, at least the cohort's own, keep this free of device reads.
    """
    bounds = bounds or Bounds.of(local, sizes)
    width = local.batch_sizes(sizes)[:, None, None]  # [n, 1, 1]
    per_epoch = sizes[:, None] // width[:, 0]  # [n, 1]
    step = torch.arange(bounds.steps, device=sizes.device)
    within = torch.arange(bounds.width, device=sizes.device)
    shuffled = random.permutations(keys, bounds.epochs, sizes, bounds.longest)  # [n, E, longest]
    # A padded place repeats a real sample, and its weight is 0.
    start = (step // per_epoch * bounds.longest + step % per_epoch * width[:, 0])[:, :, None]  # [n, S, 1]
    places = shuffled.flatten(1).gather(1, (start + within.clamp(max=width - 1)).flatten(1)).view(len(sizes), bounds.steps, -1)
    steps = local.step_counts(sizes)
    real = (within < width) & (step < steps[:, None])[:, :, None]
    return Minibatches(places, real / width, steps)
