"""Learning-rate schedules over rounds: factors of `local.lr`.

A schedule is a function of the round (counted from 1) and the settings. One of your own is one function and one line:

    SCHEDULES["halved"] = lambda round, local: 1.0 if round <= local.horizon else 0.5
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fedgwc.core.errors import InputError
from fedgwc.core.tables import Table
from fedgwc.core.work import LocalTraining

Schedule = Callable[[int, LocalTraining], float]


def constant(round: int, local: LocalTraining) -> float:
    """Keep the learning rate.

    >>> constant(7, LocalTraining())
    1.0
    """
    return 1.0


def linear(round: int, local: LocalTraining) -> float:
    """Go to `lr_end` in equal parts, and stay there.

    >>> settings = LocalTraining(schedule="linear", horizon=4, lr_end=0.0)
    >>> [linear(r, settings) for r in (1, 2, 3, 4, 5, 6)]
    [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    """
    return 1.0 - (1.0 - local.lr_end) * _progress(round, local)


def cosine(round: int, local: LocalTraining) -> float:
    """Go to `lr_end` along half a wave, and stay there.

    >>> settings = LocalTraining(schedule="cosine", horizon=2, lr_end=0.5)
    >>> [round(cosine(r, settings), 9) for r in (1, 2, 3, 4)]
    [1.0, 0.75, 0.5, 0.5]
    """
    return local.lr_end + (1.0 - local.lr_end) * (1.0 + math.cos(math.pi * _progress(round, local))) / 2


def step(round: int, local: LocalTraining) -> float:
    """Multiply by `lr_end` after every `horizon` rounds.

    >>> settings = LocalTraining(schedule="step", horizon=2, lr_end=0.5)
    >>> [step(r, settings) for r in (1, 2, 3, 4, 5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    return float(local.lr_end ** ((round - 1) // (local.horizon or 1)))


def _progress(round: int, local: LocalTraining) -> float:
    """Return the share of the horizon that lies behind, in [0, 1]."""
    return min(1.0, (round - 1) / (local.horizon or 1))


SCHEDULES: Table[Schedule] = Table(
    "schedule", "fedgwc.schedules", {"constant": constant, "linear": linear, "cosine": cosine, "step": step}
)


def learning_rate(local: LocalTraining, round: int | None) -> float | None:
    """Return the round's learning rate; None where it is `local.lr` in every round.

    >>> learning_rate(LocalTraining(lr=0.5, schedule="step", horizon=1, lr_end=0.5), 3)
    0.125
    """
    factor = SCHEDULES.choose(local.schedule)
    if factor is constant:
        return None
    if round is None:
        raise InputError(
            f"local.schedule={local.schedule} depends on the round, and none was given; pass engine.train(..., "
            f"work=Work(round=...)), as an algorithm does with its rng.round, or use local.schedule=constant"
        )
    return local.lr * float(factor(round, local))
