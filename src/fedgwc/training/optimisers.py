"""Optimisers: SGD, Adam, AdamW and a user's own.

An optimiser is one function of a client's gradient [p], what it remembers of the round so far (a tuple of tensors, empty at
first), the parameters [p] and the settings; it returns the step, which is taken times the learning rate, and what it
remembers now. It must be of tensor operations, since engines stack it over clients and record it. One of your own is one
function and one line:

    OPTIMISERS["sign"] = Optimiser(lambda gradient, memory, parameters, local: (gradient.sign(), ()))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.tables import Table
from fedgwc.core.work import LocalTraining

Memory = tuple[Tensor, ...]
Direction = Callable[[Tensor, Memory, Tensor, LocalTraining], tuple[Tensor, Memory]]


def sgd(gradient: Tensor, memory: Memory, parameters: Tensor, local: LocalTraining) -> tuple[Tensor, Memory]:
    """Follow the gradient, with momentum from the steps before."""
    if not local.momentum:
        return gradient, ()
    velocity = torch.add(gradient, memory[0], alpha=local.momentum) if memory else gradient
    return velocity, (velocity,)


def adam(gradient: Tensor, memory: Memory, parameters: Tensor, local: LocalTraining) -> tuple[Tensor, Memory]:
    """Follow Adam's direction (Kingma and Ba, 2015).

    The mean gradient, divided by the root of the mean square.

    The means are corrected for having started at 0 by the sums of their weights, 1 - beta^t.
    """
    first, second = local.betas
    zero, nothing = torch.zeros_like(gradient), gradient.new_zeros(())
    mean, square, mean_weight, square_weight = memory or (zero, zero, nothing, nothing)
    mean, mean_weight = first * mean + (1 - first) * gradient, first * mean_weight + (1 - first)
    square, square_weight = second * square + (1 - second) * gradient * gradient, second * square_weight + (1 - second)
    direction = (mean / mean_weight) / ((square / square_weight).sqrt() + local.eps)
    return direction, (mean, square, mean_weight, square_weight)


@dataclass(frozen=True)
class Optimiser:
    """A direction, and the place where weight decay enters.

    It enters the gradient, or the step as in AdamW (Loshchilov and Hutter, 2019).
    """

    direction: Direction
    decay_in_step: bool = False


SGD = Optimiser(sgd)


def _check(name: str, entry: Any) -> None:
    if not isinstance(entry, Optimiser):
        raise InputError(f"the optimiser {name!r} must be an Optimiser(function), got {entry!r}")


OPTIMISERS: Table[Optimiser] = Table(
    "optimiser",
    "fedgwc.optimisers",
    {"sgd": SGD, "adam": Optimiser(adam), "adamw": Optimiser(adam, decay_in_step=True)},
    _check,
)


def descent(local: LocalTraining) -> Callable[..., tuple[Tensor, ...]]:
    """Return one client's step on its parameters, (new parameters [p], *memory), for its gradient.

    An optional argument is absent if its length is 0: `moves` [p] or [0], `rate` [1] or [0], where `local.lr` holds.
    """
    optimiser = OPTIMISERS.choose(local.optimiser)

    def descend(
        old: Tensor, gradient: Tensor, anchor: Tensor, moves: Tensor, rate: Tensor, *memory: Tensor
    ) -> tuple[Tensor, ...]:
        def moving(t: Tensor) -> Tensor:
            return torch.where(moves, t, 0.0) if len(moves) else t

        g = clipped(moving(gradient), local.clip) if local.clip else gradient
        if local.weight_decay and not optimiser.decay_in_step:
            g = torch.add(g, old, alpha=local.weight_decay)
        if local.prox:
            g = torch.add(g, old - anchor, alpha=local.prox)
        direction, kept = optimiser.direction(moving(g), memory, old, local)
        if local.weight_decay and optimiser.decay_in_step:
            direction = torch.add(direction, old, alpha=local.weight_decay)
        new = old - rate * direction if len(rate) else torch.sub(old, direction, alpha=local.lr)
        return (torch.where(moves, new, old) if len(moves) else new, *kept)

    return descend


def clipped(gradient: Tensor, most: float) -> Tensor:
    """Scale a gradient down to the norm `most`.

    As `torch.nn.utils.clip_grad_norm_` does.

    >>> clipped(torch.tensor([3.0, 4.0]), 2.5)
    tensor([1.5000, 2.0000])
    """
    factor: Tensor = (most / (torch.linalg.vector_norm(gradient) + 1e-6)).clamp(max=1.0)
    return gradient * factor
