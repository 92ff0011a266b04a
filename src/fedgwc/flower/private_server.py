"""Private losses at the server: after training it asks for masked sums, then for rewards, and never sees a client's losses.

With the rewards comes another masked sum, of the clients' mean losses squared: with it the server knows what the cohort's
losses say as a whole (`Updates.readings`). Where it fails the rewards count all the same.

The parties of a sum are nodes: each adds up its own clients and masks the result. `private_client` is the other side.

A party that fails between training and sum makes that sum worthless. It is not tried again with those who are left: two sums
over the same losses that differ by one client would tell that client's losses. So that model's cohort has no rewards in this
round, its clients' updates count all the same, and the next round asks anew. For the same reason a round that is done again,
because the server was killed in the middle of it, asks for no second sum.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedgwc.algorithms.fedgwc.algorithm import FedGWC
from fedgwc.algorithms.method import Method
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import SaysWhatItNeeds
from fedgwc.core.sampling import SMALLEST_COHORT
from fedgwc.core.types import Floats, Ids
from fedgwc.flower import checks, masking, moments
from fedgwc.flower.checks import Invalid
from fedgwc.flower.private_client import REWARD, SUM
from fedgwc.flower.wire import KeptLosses, Question, Rewarded, Summed, Task, Trained
from fedgwc.io.atomic import write_atomically

log = logging.getLogger("fedgwc")
UNKNOWN_READINGS: Floats = np.full(4, np.nan)  # readings


class Ask(Protocol):
    """One exchange: `FlowerEngine._ask`."""

    def __call__(self, tasks: list[Task], put: Callable[..., Any], read: Callable[..., Any]) -> list[Any]: ...


@dataclass(frozen=True)
class Cohort:
    """The clients that trained the same model, and what all their nodes are told."""

    members: dict[Task, KeptLosses]  # n
    steps: Ids  # [n]
    weights: Floats | None  # [n], mean 1
    scale: float  # weight per sample; 0: all weigh 1
    centre: Floats  # [S]

    @property
    def keys(self) -> list[bytes]:
        """Return one key per node, sorted."""
        return sorted({kept.key for kept in self.members.values()})


@dataclass(frozen=True)
class CohortStatistics:
    """A cohort's sums, and the mean and variance of its losses."""

    sums: Floats  # [2, S]
    mean: Floats  # [S]
    variance: Floats  # [S]


def private_losses_for(algorithm: Any, note: Path | None = None) -> PrivateLosses | None:
    """Return an algorithm's private exchanges; None: it needs no losses."""
    learns_from = algorithm.learns_from if isinstance(algorithm, SaysWhatItNeeds) else None
    if learns_from == "sums":  # IFCA's clients say which model fits best, not how well
        return None
    if learns_from != "rewards":
        name = type(algorithm.who if isinstance(algorithm, Method) else algorithm).__name__
        why = "compares the clients' own updates one by one" if learns_from == "updates" else "may learn from anything"
        raise InputError(
            f"private-losses does not go with {name}, which {why}; "
            "use auto, fedgwc, fedavg, fedavgm, fairavg, fedprox or ifca, or leave private-losses out"
        )
    weighted = isinstance(algorithm, Method) and isinstance(algorithm.who, FedGWC) and algorithm.who.statistics == "weighted"
    return PrivateLosses(weighted, note)


class PrivateLosses:
    """The two exchanges after a training; a file may note the last round that had them."""

    def __init__(self, weighted: bool = False, note: Path | None = None) -> None:
        self.weighted, self.note = weighted, note
        self.centre: Floats = np.zeros(1)  # [S] the last round's mean: sums around it keep the most digits

    def rewards_and_readings(self, answers: Sequence[Trained], ask: Ask, number: int, rounding: float) -> tuple[Floats, Floats]:
        """Return rewards [n] and readings [n, 4] as in `Updates`; NaN: none."""
        cohorts = self._cohorts(answers) if self._is_first_attempt(number) else {}
        statistics = self._statistics(cohorts, ask, rounding)
        tasks = [t for row in statistics for t in cohorts[row].members]
        found: list[Rewarded] = ask(
            tasks, lambda mine: [_ask_reward(mine, statistics, cohorts)], lambda c, t: _read_rewards(c, t, cohorts)
        )
        by_task = {r.task: r.reward for r in found}
        by_row = {row: _readings(row, cohorts[row], statistics[row], found) for row in statistics}
        if statistics:
            means = [s.mean for s in statistics.values()]
            self.centre = np.array([np.mean([m[s] for m in means if s < len(m)]) for s in range(max(map(len, means)))])
        rewards = np.array([by_task.get(a.task, np.nan) for a in answers], np.float64)
        return rewards, np.array([by_row.get(a.task.row, UNKNOWN_READINGS) for a in answers])

    def _is_first_attempt(self, number: int) -> bool:
        """Note that a round's losses are summed; False: again."""
        if self.note is None:
            return True
        if self.note.exists() and _number_in(self.note) >= number:
            log.warning("round %d is done again; its losses may have been summed before, so it gives no rewards", number)
            return False
        write_atomically(self.note, str(number).encode())
        return True

    def _cohorts(self, answers: Sequence[Trained]) -> dict[int, Cohort]:
        """Group answers by model, leaving out cohorts below three clients."""
        found = {}
        for row in sorted({a.task.row for a in answers}):
            cohort = {a.task: a.kept for a in answers if a.task.row == row and a.kept is not None}
            if len(cohort) < SMALLEST_COHORT:
                continue
            sizes = np.array([a.size for a in answers if a.task in cohort], np.float64)
            steps = np.array([kept.steps for kept in cohort.values()], np.int64)
            scale = len(sizes) / float(sizes.sum()) if self.weighted else 0.0
            S = moments.counted_steps(steps.tolist())
            centre = np.pad(self.centre, (0, max(0, S - len(self.centre))), "edge")[:S]
            found[row] = Cohort(cohort, steps, sizes * scale if scale else None, scale, centre)
        return found

    def _statistics(self, cohorts: dict[int, Cohort], ask: Ask, rounding: float) -> dict[int, CohortStatistics]:
        """Compute statistics of every cohort whose nodes have all sent their sums."""
        tasks = [t for c in cohorts.values() for t in c.members]
        sums: list[Summed] = ask(tasks, lambda mine: [_ask_sum(mine, cohorts)], lambda c, t: _read_sums(c, t, cohorts))
        found = {}
        for row, c in cohorts.items():
            words = {c.members[s.task].key: s.words for s in sums if s.task.row == row}  # by node
            if len(words) < len(c.keys):
                log.warning("model %d: %d of %d nodes sent their sum; no rewards this time", row, len(words), len(c.keys))
                continue
            total = masking.decode(masking.total(list(words.values())))
            try:
                found[row] = CohortStatistics(total, *moments.statistics(total, c.steps, c.weights, c.centre, rounding))
            except ValueError as reason:
                log.warning("model %d: somebody spoiled the sum, %s; no rewards this time", row, reason)
        return found


def _number_in(note: Path) -> int:
    """Read the last round whose losses were summed."""
    try:
        return int(note.read_text())
    except ValueError as error:
        raise InputError(
            f"{note} should hold the number of the last round whose losses were summed, and cannot be read ({error}); "
            "write the last round that this run began into it, in doubt a later one: rounds up to it give no rewards"
        ) from None


def _readings(row: int, c: Cohort, statistics: CohortStatistics, found: Sequence[Rewarded]) -> Floats:
    """Return readings [4] if each node has sent its sum of means."""
    if c.weights is not None:
        return UNKNOWN_READINGS
    words = {c.members[r.task].key: r.words for r in found if r.task.row == row and r.words is not None}  # by node
    if len(words) < len(c.keys):
        sent = f"{len(words)} of {len(c.keys)} nodes sent their sum of means"
        log.warning("model %d: %s (those of an older version cannot); contrast and drift are unknown this time", row, sent)
        return UNKNOWN_READINGS
    first, second = statistics.mean[:2] if len(statistics.mean) > 1 else (0.0, 0.0)
    try:
        own = float(masking.decode(masking.total(list(words.values()))))
        return np.array([*moments.variances(own, statistics.sums, c.steps), first, second])
    except ValueError as reason:
        log.warning("model %d: somebody spoiled the sum of means, %s; contrast and drift are unknown this time", row, reason)
        return UNKNOWN_READINGS


def _name(row: int) -> str:
    return f"model-{row}"


def _ask_sum(mine: Sequence[Task], cohorts: dict[int, Cohort]) -> Question:
    content = RecordDict()
    for row in sorted({t.row for t in mine}):
        c = cohorts[row]
        shared = {"keys": c.keys, "steps": c.steps.tolist(), "centre": c.centre.tolist(), "scale": c.scale}
        content[_name(row)] = ConfigRecord({**shared, "mine": [c.members[t].record for t in mine if t.row == row]})
    return Question(tuple(mine), content, f"query.{SUM}")


def _read_sums(content: RecordDict, tasks: Sequence[Task], cohorts: dict[int, Cohort]) -> dict[Task, Summed | Invalid]:
    arrays = content.array_records.get("sums", ArrayRecord())
    found: dict[Task, Summed | Invalid] = {}
    for row in sorted({t.row for t in tasks}):
        words = checks.array(arrays.get(_name(row)), (2, 2, len(cohorts[row].centre)), np.dtype(np.uint64))
        found |= {t: Summed(t, words) for t in tasks if t.row == row}
    return found


def _ask_reward(mine: Sequence[Task], statistics: dict[int, CohortStatistics], cohorts: dict[int, Cohort]) -> Question:
    content = RecordDict()
    for row in sorted({t.row for t in mine}):
        mean, variance = statistics[row].mean.tolist(), statistics[row].variance.tolist()
        content[_name(row)] = ConfigRecord({"mean": mean, "variance": variance, "plain": cohorts[row].weights is None})
    return Question(tuple(mine), content, f"query.{REWARD}")


def _read_rewards(content: RecordDict, tasks: Sequence[Task], cohorts: dict[int, Cohort]) -> dict[Task, Rewarded | Invalid]:
    record, means = content.metric_records.get("rewards", MetricRecord()), content.array_records.get("means", ArrayRecord())
    found: dict[Task, Rewarded | Invalid] = {}
    for task in tasks:
        sent = means.get(_name(task.row))
        try:
            words = None if sent is None else checks.array(sent, (2,), np.dtype(np.uint64))
            found[task] = Rewarded(task, checks.share(record, cohorts[task.row].members[task].record), words)
        except Invalid as reason:
            found[task] = reason
    return found
