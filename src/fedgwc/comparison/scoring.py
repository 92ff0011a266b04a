"""The score by which a comparison ranks: which metric, and when."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedgwc.comparison.outcomes import Candidate, Outcome, Row
from fedgwc.core.errors import InputError
from fedgwc.core.settings import did_you_mean
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.selection import WHEN

WHEN_TEXT = {
    "last": "at the end of the runs",
    "best": "at the round that is best on validation",
    "mean": "as the mean of the last 10 evaluations",
}
SCORES = (  # shares of which more is better
    "accuracy",
    "balanced_accuracy",
    "weighted_accuracy",
    "accuracy_p10",
    "accuracy_worst",
    "newcomers_accuracy",
    "newcomers_balanced_accuracy",
    "rand",
    "ari",
)
VALIDATED = ("accuracy", "balanced_accuracy")  # have a counterpart on validation data; other scores are chosen by the first
PER_CLIENT = {"accuracy": "accuracy", "balanced_accuracy": "balanced", "weighted_accuracy": "weighted"}  # in per_client.npz
CURE = "set data.validation=0.2, a share of each client's training samples"


@dataclass(frozen=True)
class Scoring:
    """Scores: a run reduced to one number."""

    metric: str = "accuracy"
    when: str = "last"

    def __post_init__(self) -> None:
        for name, value, known in (("--metric", self.metric, SCORES), ("--when", self.when, tuple(WHEN))):
            if value not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}; got {value!r}{did_you_mean(value, known)}")

    def check(self, jobs: Iterable[Experiment]) -> None:
        """Refuse, before anything runs, what reads validation data that none of the runs will have."""
        if self.when == "best" and any(job.splits.validation == 0 for job in jobs):
            raise InputError(f"--when best reads validation data, and data.validation is 0; {CURE}")

    @property
    def validated(self) -> str:
        """Return the metric whose validation value decides."""
        return self.metric if self.metric in VALIDATED else VALIDATED[0]

    def row(self, rows: Sequence[Row]) -> Row:
        """Return the evaluation that counts."""
        return WHEN[self.when](rows, self.validated)

    def score(self, outcome: Outcome) -> float | None:
        """Return a run's score on test data, where it has one."""
        value = self.row(outcome.rows).get(self.metric)
        return None if value is None else float(value)

    def validation(self, outcome: Outcome) -> float | None:
        """Return a run's score on validation data, where it has one."""
        value = self.row(outcome.rows).get(f"validation_{self.validated}")
        return None if value is None else float(value)


@dataclass(frozen=True)
class Choice:
    """A method's settings that were tried, and those that are reported."""

    tried: tuple[Candidate, ...]
    reported: tuple[Candidate, ...]  # one, unless nothing could tell which
    validation: dict[str, float]  # mean over seeds, by title; empty without validation


def choose(tried: Sequence[Candidate], scoring: Scoring) -> Choice:
    """Choose a method's settings by their mean validation score.

    Over the seeds that all of them have. Without validation data nothing is chosen, and all are reported.
    """
    ran = [c for c in tried if c.outcomes]
    seeds = [seed for seed in (ran[0].outcomes if ran else ()) if all(seed in c.outcomes for c in ran)]
    scores = {c.title: [scoring.validation(c.outcomes[seed]) for seed in seeds] for c in ran}
    known = {title: [x for x in found if x is not None] for title, found in scores.items()}
    if not seeds or any(len(known[title]) < len(seeds) for title in known):
        return Choice(tuple(tried), tuple(ran), {})
    means = {title: statistics.fmean(found) for title, found in known.items()}
    return Choice(tuple(tried), (max(ran, key=lambda c: means[c.title]),), means)
