"""The settings of the package's own rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from fedgwc.algorithms.aggregate import Aggregator
from fedgwc.core.errors import InputError
from fedgwc.core.sampling import Rate, check_rate, cohort_size
from fedgwc.core.search import Between

MOST_VISITS = np.iinfo(np.int16).max  # the largest count of visits that a window of many clients can hold
MEETING = 10  # where a tenth of the clients train, a client meets a given other one about once in this many of its rounds
ALLOWED: dict[str, tuple[str, Callable[[float], bool]]] = {
    "contrast": ("at least -1", lambda x: x >= -1),
    "drift": ("positive", lambda x: x > 0),
    "agreement": ("at most 1", lambda x: x <= 1),
    "gain": ("a number", lambda x: not math.isnan(x)),
    "doubt": ("finite and at least 0", lambda x: 0 <= x < math.inf),
    "directions": ("at least 1", lambda x: x >= 1),
    "n_max": ("at least 2", lambda x: x >= 2),
    "min_size": ("at least 1", lambda x: x >= 1),
    "visits": (f"in 1..{MOST_VISITS - 1}", lambda x: 1 <= x < MOST_VISITS),
}


@dataclass(frozen=True)
class Settings:
    """Settings of the rule."""

    rate: Rate = 0.1
    server: Aggregator = field(default_factory=Aggregator)
    n_max: Annotated[int, "most groups that are looked for; the cut is made in two, at the widest gap"] = 5
    min_size: Annotated[int, "smallest group; 3 / rate would keep the clients trained per round constant, up to rounding"] = 3
    sides: Annotated[bool, "keep two more matrices: on which side of the mean losses lie, and how much they vary"] = True
    echo: Annotated[bool, "and a third: how much lower k's first loss is after j has trained; needs sides and pairs"] = True
    visits: Annotated[int, "half of all pairs have met so often at a window's end"] = 1
    agreement: Annotated[float, "least adjusted Rand index between the cuts of two windows in a row", Between(0.7, 0.99)] = 0.94
    directions: Annotated[int, "leading axes of the clients' cloud in which a cut is searched for, all or the first few"] = 6
    contrast: Annotated[
        float,
        "in half of the rounds: variance of losses between clients over that within one, minus 1",
        Between(0.5, 8.0, log=True),
    ] = 2.0
    gain: Annotated[
        float,
        "how much better than one group several must describe clients, for each more; scale of BIC",
        Between(1.0, 16.0, log=True),
    ] = 4.0
    doubt: Annotated[float, "extra gain where too few can try the division, and again for each one that was undone"] = 11.0
    drift: Annotated[float, "divide regardless if the first step's loss is at least 1 + this times the second's"] = 1.0
    second_look: Annotated[bool, "groups are divided on trial: some clients sit out, then tell which model serves them"] = True
    pairs_up_to: Annotated[int, "above so many clients, what is known is kept by client, not by pair"] = 4096

    def __post_init__(self) -> None:
        check_rate(self.rate)
        for name, (allowed, is_allowed) in ALLOWED.items():
            if not is_allowed(getattr(self, name)):
                raise InputError(f"{name} must be {allowed}, got {getattr(self, name)}")

    @property
    def fewest(self) -> int:
        """Clients of a cluster that may be divided."""
        return max(2 * self.min_size, 3)

    def is_divisible(self, K: int) -> bool:
        return self.fewest <= K

    def cohort_of(self, n_members: int) -> int:
        return cohort_size(n_members, self.rate)

    def visits_wanted(self, by_pairs: bool = True) -> int:
        """Return the visits that half of the pairs must have.

        Or half of the clients, at the end of a window.
        """
        return self.visits * (1 if by_pairs else MEETING)
