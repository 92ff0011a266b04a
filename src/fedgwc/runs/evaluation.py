"""All numbers of one evaluation: how the models serve the clients and how the clusters fit them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from fedgwc.core.protocols import Engine
from fedgwc.core.types import Clustering, Floats, Ids
from fedgwc.data.federation import Federation
from fedgwc.metrics import clustering as scores_of
from fedgwc.metrics.classification import summary


def evaluate_clustering(
    clustering: Clustering, engine: Engine, federation: Federation, train_counts: Floats | None
) -> dict[str, float]:
    """Each client's own model on its own test set, and the clustering scores where they mean something.

    train_counts [N, C]; None: unknown, and so is what needs them.
    """
    everybody = np.arange(federation.n_clients)
    scores = engine.evaluate(everybody, clustering.models, clustering.labels)
    return {
        **summary(scores, train_counts),
        "clusters": len(np.unique(clustering.labels)),
        **clustering_scores(clustering.labels, train_counts, federation.groups),
    }


def clustering_scores(labels: Ids, counts: Floats | None, truth: Ids | None) -> dict[str, float]:
    """WAS and WADB where class counts are known; Rand and adjusted Rand where true groups are. What is undefined is left out."""
    parts = [b"-" if x is None else f"{x.dtype}{x.shape}".encode() + x.tobytes() for x in (labels, counts, truth)]
    digest = hashlib.sha256(b"".join(parts)).digest()
    return dict(_scores(_Clusters(digest, labels, counts, truth)))


@dataclass(frozen=True)
class _Clusters:
    """What is scored, known by its contents."""

    digest: bytes
    labels: Ids = field(compare=False)
    counts: Floats | None = field(compare=False)
    truth: Ids | None = field(compare=False)


@lru_cache(maxsize=16)  # labels rarely change from one evaluation to the next, and pairs of clients are many; runs may go in step
def _scores(of: _Clusters) -> dict[str, float]:
    labels, counts, truth = of.labels, of.counts, of.truth
    row: dict[str, float] = {}
    if counts is not None:
        row["was"] = scores_of.wasserstein_adjusted_silhouette(counts, labels)
        row["wadb"] = scores_of.wasserstein_adjusted_davies_bouldin(counts, labels)
    if truth is not None:
        row |= {"rand": scores_of.rand_index(truth, labels), "ari": scores_of.adjusted_rand_index(truth, labels)}
    return {k: v for k, v in row.items() if not np.isnan(v)}
