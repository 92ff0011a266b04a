"""What clients shall do in a round: how they train, from where they are held back, and which entries of the model move."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedgwc.core.errors import InputError

MOST_STEPS = 100_000  # of a round, or epochs: the samples of all of them are chosen before the first


@dataclass(frozen=True)
class LocalTraining:
    """Local SGD. Give `steps` (the same for all clients) or `epochs` (as many as each client's data make).

    Minibatches are reshuffled when exhausted and the incomplete last one is dropped. A client with fewer samples than
    `batch` uses all it has in every step, and the loss of such a step is the mean over those.
    """

    steps: Annotated[int | None, "local steps, the same for all clients"] = None
    epochs: Annotated[int | None, "in place of steps: passes over each client's own data; with neither, one"] = None
    batch: Annotated[int, "samples per step; a client with fewer uses all it has"] = 64
    lr: Annotated[float, "learning rate"] = 0.01
    weight_decay: Annotated[float, "added to the gradient, times the weights"] = 0.0
    momentum: Annotated[float, "of SGD, in [0, 1); it starts anew in every round"] = 0.0
    prox: Annotated[float, "> 0: FedProx, a pull of this strength towards the model that was sent"] = 0.0

    def __post_init__(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise InputError(f"give local steps or epochs, not both; got steps={self.steps} and epochs={self.epochs}")
        for name in ("steps", "epochs"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST_STEPS:
                raise InputError(f"local {name} must be in 1..{MOST_STEPS}, got {value}")
        if self.batch < 1:
            raise InputError(f"local batch must be at least 1, got {self.batch}")
        if not 0 < self.lr < math.inf:
            raise InputError(f"local lr must be positive and finite, got {self.lr}")
        if not (0 <= self.weight_decay < math.inf and 0 <= self.prox < math.inf and 0 <= self.momentum < 1):
            raise InputError(
                "local weight_decay and prox must be >= 0 and finite and momentum in [0, 1), "
                f"got {self.weight_decay}, {self.prox} and {self.momentum}"
            )

    def batch_sizes(self, sizes: Tensor) -> Tensor:
        """[n]: samples per minibatch of each client."""
        return sizes.clamp(max=self.batch)

    def step_counts(self, sizes: Tensor) -> Tensor:
        """[n]: local steps of each client."""
        if self.steps is not None:
            return torch.full_like(sizes, self.steps)
        return (self.epochs or 1) * (sizes // self.batch_sizes(sizes))


@dataclass(frozen=True)
class Work:
    """One round's order to the clients, beside the models that they start from."""

    round: int | None = None  # for schedules, which depend on it
    anchor: Tensor | None = None  # [M, D] a point for each of the models sent, towards which `prox` pulls; None: these models
    moves: Tensor | None = None  # [D] true where entries train; None: all of them
