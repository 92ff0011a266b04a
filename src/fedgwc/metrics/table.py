"""The table of metrics that each evaluation computes.

A metric is a function of an `Evaluated`. It returns one number, or one per client, which is averaged over clients and, as
`NAME_by_size`, over their test samples; None where it has no meaning. One of your own is one function and one line:

    METRICS["worst_client"] = lambda e: float(accuracy(e.scores).min())
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from fedgwc.core.tables import Table
from fedgwc.core.types import Floats, Ids, Scores
from fedgwc.metrics import clustering
from fedgwc.metrics.classification import accuracy, balanced_accuracy, mean_over, weighted_accuracy


@dataclass(frozen=True)
class Evaluated:
    """Scores of models on clients, with the clients' known properties."""

    scores: Scores  # n clients
    labels: Ids  # [n] the cluster of each
    train_counts: Floats | None = None  # [n, C] training samples per class
    truth: Ids | None = None  # [n] the group each client was built in


Metric = Callable[[Evaluated], "float | Floats | None"]


def evaluate(seen: Evaluated, metrics: Mapping[str, Metric] | None = None) -> dict[str, float]:
    """Compute metrics, by default all of the table; what is undefined is left out."""
    row: dict[str, float] = {}
    sizes = seen.scores.total.sum(1)
    alike = (sizes > 0).astype(np.float64)
    for name, metric in (METRICS if metrics is None else metrics).items():
        value = metric(seen)
        if isinstance(value, np.ndarray):
            row |= {name: mean_over(value, alike), f"{name}_by_size": mean_over(value, sizes)}
        elif value is not None:
            row[name] = value
    return row


def clustering_scores(labels: Ids, counts: Floats | None, truth: Ids | None) -> dict[str, float]:
    """Score clusters by class counts and by true groups.

    Unknown or undefined scores are left out.
    """
    return {name: v for name in ("was", "wadb", "rand", "ari") if (v := _score(name, labels, counts, truth)) is not None}


def _score(name: str, labels: Ids, counts: Floats | None, truth: Ids | None) -> float | None:
    parts = [b"-" if x is None else f"{x.dtype}{x.shape}".encode() + x.tobytes() for x in (labels, counts, truth)]
    return _scores(_Clusters(hashlib.sha256(b"".join(parts)).digest(), labels, counts, truth)).get(name)


@dataclass(frozen=True)
class _Clusters:
    """Clusters and their clients' class counts, compared by content."""

    digest: bytes
    labels: Ids = field(compare=False)
    counts: Floats | None = field(compare=False)
    truth: Ids | None = field(compare=False)


@lru_cache(maxsize=16)  # labels rarely change from one evaluation to the next, and pairs of clients are many; runs may go in step
def _scores(of: _Clusters) -> dict[str, float]:
    row: dict[str, float] = {}
    if of.counts is not None:
        row["was"] = clustering.wasserstein_adjusted_silhouette(of.counts, of.labels)
        row["wadb"] = clustering.wasserstein_adjusted_davies_bouldin(of.counts, of.labels)
    if of.truth is not None:
        row["rand"] = clustering.rand_index(of.truth, of.labels)
        row["ari"] = clustering.adjusted_rand_index(of.truth, of.labels)
    return {name: value for name, value in row.items() if not np.isnan(value)}


def over_clients(scores: Scores, summary: Callable[[Floats], np.floating]) -> float:
    """Summarise the accuracies of the clients with samples."""
    of_each = accuracy(scores)
    known = of_each[~np.isnan(of_each)]
    return float(summary(known)) if len(known) else float("nan")


def _by_class(e: Evaluated) -> bool:
    return bool(e.scores.total.shape[1] > 1)


OF_CLUSTERS = ("clusters", "was", "wadb", "rand", "ari")  # metrics that look at labels alone
METRICS: Table[Metric] = Table(
    "metric",
    "fedgwc.metrics",
    {
        "accuracy": lambda e: accuracy(e.scores),
        "balanced_accuracy": lambda e: balanced_accuracy(e.scores) if _by_class(e) else None,
        "weighted_accuracy": lambda e: (
            weighted_accuracy(e.scores, e.train_counts) if _by_class(e) and e.train_counts is not None else None
        ),
        "accuracy_std": lambda e: over_clients(e.scores, np.std),
        "accuracy_p10": lambda e: over_clients(e.scores, lambda a: np.percentile(a, 10)),
        "accuracy_worst": lambda e: over_clients(e.scores, np.min),
        "loss": lambda e: mean_over(e.scores.loss, (e.scores.total.sum(1) > 0).astype(np.float64)),
        "clusters": lambda e: len(np.unique(e.labels)),
        "was": lambda e: _score("was", e.labels, e.train_counts, e.truth),
        "wadb": lambda e: _score("wadb", e.labels, e.train_counts, e.truth),
        "rand": lambda e: _score("rand", e.labels, e.train_counts, e.truth),
        "ari": lambda e: _score("ari", e.labels, e.train_counts, e.truth),
    },
)
