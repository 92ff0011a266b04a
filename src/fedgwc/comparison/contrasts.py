"""Methods under one condition, with their differences to a reference."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedgwc.comparison.gains import NEW, OLD, Shares, shares
from fedgwc.comparison.outcomes import Candidate, Row
from fedgwc.comparison.scoring import PER_CLIENT, Scoring
from fedgwc.core.errors import InputError
from fedgwc.metrics.differences import Difference, bootstrap_interval, holm, paired_difference

ALONE, GLOBAL = "alone", "fedavg"  # training without others, and one model for all
LEVEL = 0.05


@dataclass(frozen=True)
class Line:
    """A method's results over seeds, and its difference to the reference."""

    candidate: Candidate
    rows: Mapping[int, Row]  # by seed: the evaluation that counts
    scores: Mapping[int, float]  # by seed
    difference: Difference | None  # None: the reference itself, or no seed in common with it
    p: float  # of the difference, adjusted by Holm over the methods of the table
    over_clients: tuple[float, float] | None  # bootstrap interval of the clients' mean difference
    best: bool  # shown to beat each of the others
    gains: Mapping[tuple[str, str], Shares]  # by whose clients (OLD, NEW) and over which method (ALONE, GLOBAL)

    @property
    def title(self) -> str:
        return self.candidate.title

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores.values()) if self.scores else np.nan

    @property
    def last(self) -> list[Row]:
        """Return each seed's last evaluation."""
        return [outcome.rows[-1] for outcome in self.candidate.outcomes.values()]

    @property
    def verdict(self) -> str:
        """Say what the adjusted p value shows of the difference."""
        if self.difference is None:
            return "–"
        if self.difference.pairs < 2:
            return "one seed, no interval"
        if not self.p < LEVEL:
            return "no difference shown"
        return "better" if self.difference.mean > 0 else "worse"


@dataclass(frozen=True)
class Panel:
    """A table's content: methods on the same federations."""

    lines: tuple[Line, ...]
    reference: str | None  # its title; None: it has no result
    scoring: Scoring

    @property
    def pairs(self) -> int:
        """Return the largest number of seeds that a difference rests on."""
        return max((line.difference.pairs for line in self.lines if line.difference), default=0)


def contrast(candidates: Sequence[Candidate], reference: str, scoring: Scoring) -> Panel:
    """Compare methods on the same federations with a reference method.

    The runs of a seed are a pair.
    """
    ran = [c for c in candidates if c.outcomes]
    rows = [{seed: scoring.row(o.rows) for seed, o in c.outcomes.items()} for c in ran]
    scores = [{seed: float(row[scoring.metric]) for seed, row in by.items() if scoring.metric in row} for by in rows]
    if not any(scores):
        raise InputError(f"no run has {scoring.metric}; choose another --metric")
    at = reference_of(ran, reference)
    differences = [None if at is None or at == i else difference(s, scores[at]) for i, s in enumerate(scores)]
    adjusted = holm([np.nan if d is None else d.p for d in differences]).tolist()
    spans = [None if at is None or at == i else over_clients(c, ran[at], scoring) for i, c in enumerate(ran)]
    best = [beats_all(i, scores) for i in range(len(ran))]
    lines = map(Line, ran, rows, scores, differences, adjusted, spans, best, (_gains(c, ran) for c in ran))
    return Panel(tuple(lines), None if at is None else ran[at].title, scoring)


def usual_reference(algorithms: Sequence[str]) -> str:
    """Choose the method that others are compared with: fedavg, if it is there."""
    return GLOBAL if GLOBAL in algorithms else algorithms[0]


def checked_reference(reference: str | None, algorithms: Sequence[str]) -> str:
    """Return the reference method; it is one of those compared."""
    if reference is None:
        return usual_reference(algorithms)
    if reference not in algorithms:
        raise InputError(f"--reference must be one of the methods compared, {', '.join(algorithms)}; got {reference!r}")
    return reference


def reference_of(candidates: Sequence[Candidate], name: str) -> int | None:
    """Find the reference by its title, else by its algorithm."""
    titles = [c.title for c in candidates]
    named = [i for i, c in enumerate(candidates) if c.algorithm == name]
    return titles.index(name) if name in titles else named[0] if named else None


def difference(scores: Mapping[int, float], reference: Mapping[int, float]) -> Difference | None:
    """Compute the paired difference over the seeds in common."""
    seeds = [seed for seed in scores if seed in reference and np.isfinite([scores[seed], reference[seed]]).all()]
    return paired_difference([scores[s] for s in seeds], [reference[s] for s in seeds]) if seeds else None


def beats_all(i: int, scores: Sequence[Mapping[int, float]]) -> bool:
    """Tell whether a method is shown to beat each of the others, Holm over them."""
    others = [difference(scores[i], s) for j, s in enumerate(scores) if j != i]
    p = holm([np.nan if d is None else d.p for d in others])
    return bool(others) and all(d is not None and d.mean > 0 and q < LEVEL for d, q in zip(others, p, strict=True))


def over_clients(candidate: Candidate, reference: Candidate, scoring: Scoring) -> tuple[float, float] | None:
    """Bootstrap the mean difference over the clients of all seeds.

    Of the final models, so only where these are what counts.
    """
    key = PER_CLIENT.get(scoring.metric)
    both = [(o.clients, reference.outcomes[s].clients) for s, o in candidate.outcomes.items() if s in reference.outcomes]
    if key is None or scoring.when != "last" or not both or any(key not in a or key not in b for a, b in both):
        return None
    if any(not np.array_equal(a["clients"], b["clients"]) for a, b in both):
        return None
    found = np.concatenate([np.asarray(a[key], np.float64) - b[key] for a, b in both])
    low, high = bootstrap_interval(found, np.random.default_rng(0))
    return None if np.isnan(low) else (low, high)


def _gains(candidate: Candidate, candidates: Sequence[Candidate]) -> dict[tuple[str, str], Shares]:
    found: dict[tuple[str, str], Shares] = {}
    for name in (ALONE, GLOBAL):
        others = [c for c in candidates if c.algorithm == name]
        if candidate.algorithm == name or len(others) != 1:
            continue
        for who in (OLD, NEW):
            if (share := shares(candidate, others[0], who)) is not None:
                found[who, name] = share
    return found
