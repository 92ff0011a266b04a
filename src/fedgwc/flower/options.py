"""The operator's settings of a real federation; the recipe says what is learnt and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedgwc.core.errors import InputError
from fedgwc.core.sampling import SMALLEST_COHORT
from fedgwc.core.settings import override
from fedgwc.flower.checks import MOST_STEPS


@dataclass(frozen=True)
class Options:
    """Deadlines, numbers of clients to wait for, and limits."""

    deadline: float = 120.0  # seconds for one exchange: the time to live of its messages
    min_replies: int = SMALLEST_COHORT  # valid answers without which a cluster stays as it is
    min_clients: int = SMALLEST_COHORT  # clients to wait for before the first round; a run that goes on needs min_replies
    max_clients: int = 10_000  # who comes when there are so many is left out; a recipe that deals out its data has its own number
    wait: float = 600.0  # seconds to wait for them, and later for as many as a round needs
    retries: int = 10  # attempts at one round before the run stops, to be resumed; none is made while too few are there
    pause: float = 5.0  # seconds between such attempts
    strikes: int = 3  # invalid replies in a row after which a client is excluded
    max_steps: int = MOST_STEPS  # local steps, and losses, that a client may tell of per round
    poll: float = 0.2  # seconds between looks into the mailbox
    private_losses: bool = False  # clients tell rewards, and losses only in masked sums; up to three exchanges per round

    def __post_init__(self) -> None:
        if not (self.deadline > 0 and self.poll > 0 and self.wait >= 0 and self.pause >= 0):
            got = f"{self.deadline}, {self.poll}, {self.wait} and {self.pause}"
            raise InputError(f"deadline and poll must be positive seconds, wait and pause at least 0, got {got}")
        for name in ("min_replies", "min_clients", "max_clients", "retries", "strikes", "max_steps"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.min_clients > self.max_clients:
            raise InputError(
                f"min_clients = {self.min_clients} are more than max_clients = {self.max_clients} lets in; change one"
            )

    @classmethod
    def read(cls, run_config: Mapping[str, Any]) -> Options:
        """Read options from a Flower run's configuration, where keys have dashes.

        Keys of others are left alone.
        """
        known = {key.replace("-", "_"): value for key, value in run_config.items()}
        return override(cls(), {k: v for k, v in known.items() if k in cls.__dataclass_fields__}, "run-config")
