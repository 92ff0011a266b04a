"""All numbers of one evaluation: how the models serve the clients and how the clusters fit them."""

from __future__ import annotations

import numpy as np

from fedgwc.core import Clustering, Engine, Floats, Ids
from fedgwc.data.federation import Federation
from fedgwc.metrics import clustering as scores_of
from fedgwc.metrics.classification import summary


def evaluate_clustering(clustering: Clustering, engine: Engine, federation: Federation, train_counts: Floats) -> dict[str, float]:
    """Each client's own model on its own test set, and the clustering scores where they mean something."""
    everybody = np.arange(federation.n_clients)
    scores = engine.evaluate(everybody, clustering.models, clustering.labels)
    return {
        **summary(scores, train_counts),
        "clusters": len(np.unique(clustering.labels)),
        **clustering_scores(clustering.labels, train_counts, federation.groups),
    }


def clustering_scores(labels: Ids, counts: Floats, truth: Ids | None) -> dict[str, float]:
    """WAS and WADB; Rand and adjusted Rand where the true groups are known. What is undefined is left out."""
    row = {
        "was": scores_of.wasserstein_adjusted_silhouette(counts, labels),
        "wadb": scores_of.wasserstein_adjusted_davies_bouldin(counts, labels),
    }
    if truth is not None:
        row |= {"rand": scores_of.rand_index(truth, labels), "ari": scores_of.adjusted_rand_index(truth, labels)}
    return {k: v for k, v in row.items() if not np.isnan(v)}
