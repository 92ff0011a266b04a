"""The work of clients in a round.

How they train, which anchor holds them back, and which entries of the model move.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.search import Between

MOST_STEPS = 100_000  # of a round, or epochs: the samples of all of them are chosen before the first


@dataclass(frozen=True)
class LocalTraining:
    """The settings of clients' local training.

    Give `steps` (the same for all clients) or `epochs` (as many as each client's data make).

    Minibatches are reshuffled when exhausted and the incomplete last one is dropped. A client with fewer samples than
    `batch` uses all it has in every step, and the loss of such a step is the mean over those. What an optimiser remembers
    (momentum, Adam's moments) starts anew in every round.
    """

    steps: Annotated[int | None, "local steps, the same for all clients", Between(1, 16, log=True)] = None
    epochs: Annotated[int | None, "in place of steps: passes over each client's own data; with neither, one", Between(1, 8)] = (
        None
    )
    batch: Annotated[int, "samples per step; a client with fewer uses all it has"] = 64
    optimiser: Annotated[str, "sgd, adam, adamw, or one of your own; what it remembers starts anew in every round"] = "sgd"
    lr: Annotated[float, "learning rate", Between(0.001, 1.0, log=True)] = 0.01
    schedule: Annotated[str, "how lr changes over rounds: constant, linear, cosine, step, or one of your own"] = "constant"
    horizon: Annotated[int | None, "rounds in which linear and cosine reach lr_end; with step, from one drop to the next"] = None
    lr_end: Annotated[float, "of lr, what is left of it at the horizon; with step, after each drop"] = 0.1
    weight_decay: Annotated[float, "times the weights, added to the gradient (with adamw, to the step)"] = 0.0
    momentum: Annotated[float, "of sgd, in [0, 1)"] = 0.0
    betas: Annotated[tuple[float, ...], "of adam and adamw: inertia of their two means"] = (0.9, 0.999)
    eps: Annotated[float, "of adam and adamw: added to what they divide by"] = 1e-8
    clip: Annotated[float, "largest norm of a step's loss gradient, which is scaled down to it; 0: no limit"] = 0.0
    prox: Annotated[
        float,
        "> 0: FedProx, a pull of this strength towards the model that was sent, or the round's anchor",
        Between(1e-4, 1.0, log=True),
    ] = 0.0

    def __post_init__(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise InputError(f"give local steps or epochs, not both; got steps={self.steps} and epochs={self.epochs}")
        if self.schedule != "constant" and self.horizon is None:
            raise InputError(
                f"local.schedule={self.schedule} needs local.horizon, in rounds (as many as the run has, say); "
                f"it stands apart from the run's length, so that a run can be prolonged without changing what it did"
            )
        if self.optimiser in ("adam", "adamw") and self.momentum:
            raise InputError(f"local momentum is of sgd, got {self.momentum} with {self.optimiser}; set the first of local.betas")
        for name, allowed, is_allowed in LIMITS:
            value = getattr(self, name)
            if value is not None and not is_allowed(value):
                raise InputError(f"local {name} must be {allowed}, got {value}")

    def batch_sizes(self, sizes: Tensor) -> Tensor:
        """Return the samples per minibatch of each client, [n]."""
        return sizes.clamp(max=self.batch)

    def step_counts(self, sizes: Tensor) -> Tensor:
        """Return the local steps of each client, [n]."""
        if self.steps is not None:
            return torch.full_like(sizes, self.steps)
        return (self.epochs or 1) * (sizes // self.batch_sizes(sizes))


def _not_negative(value: float) -> bool:
    return 0 <= value < math.inf


LIMITS: tuple[tuple[str, str, Callable[..., bool]], ...] = (  # of the settings above that are numbers
    ("steps", f"in 1..{MOST_STEPS}", lambda n: 1 <= n <= MOST_STEPS),
    ("epochs", f"in 1..{MOST_STEPS}", lambda n: 1 <= n <= MOST_STEPS),
    ("batch", "at least 1", lambda n: n >= 1),
    ("lr", "positive and finite", lambda x: 0 < x < math.inf),
    ("horizon", "at least 1 round", lambda n: n >= 1),
    ("lr_end", ">= 0 and finite (0.1: a tenth of lr)", _not_negative),
    ("weight_decay", ">= 0 and finite", _not_negative),
    ("momentum", "in [0, 1)", lambda x: 0 <= x < 1),
    ("betas", "two numbers in [0, 1)", lambda pair: len(pair) == 2 and all(0 <= x < 1 for x in pair)),
    ("eps", ">= 0 and finite", _not_negative),
    ("clip", ">= 0 and finite (0: no limit)", _not_negative),
    ("prox", ">= 0 and finite", _not_negative),
)


@dataclass(frozen=True)
class Work:
    """One round's instructions to clients, beside their starting models."""

    round: int | None = None  # counted from 1; for schedules, which depend on it
    anchor: Tensor | None = None  # [M, D] a point for each of the models sent, towards which `prox` pulls; None: these models
    moves: Tensor | None = None  # [D] true where entries train; the others stay as they were sent; None: all of them train

    def __post_init__(self) -> None:
        if self.round is not None and self.round < 1:
            raise InputError(f"rounds are counted from 1, got Work(round={self.round})")
