"""Clustering scores of one evaluation after the other."""

from __future__ import annotations

import numpy as np
import pytest

from fedgwc.core.types import Floats, Ids
from fedgwc.metrics import clustering
from fedgwc.metrics.table import clustering_scores

COUNTS = np.array([[9.0, 1.0], [2.0, 8.0], [5.0, 5.0], [4.0, 6.0]])


def test_clusters_that_stay_are_scored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, asked = np.array([0, 0, 1, 1]), 0
    real = clustering.wasserstein_adjusted_silhouette

    def counted(counts: Floats, labels: Ids) -> float:
        nonlocal asked
        asked += 1
        return real(counts, labels)

    monkeypatch.setattr(clustering, "wasserstein_adjusted_silhouette", counted)
    first = clustering_scores(labels, COUNTS + 100, None)
    first["was"] = 7.0  # the caller's own
    again = clustering_scores(labels.copy(), COUNTS + 100, None)
    assert asked == 1
    assert again["was"] == real(COUNTS + 100, labels)
    assert clustering_scores(labels, COUNTS + 100, labels)["ari"] == 1.0
    labels[1] = 1  # the same array, with something else in it
    assert clustering_scores(labels, COUNTS + 100, None)["was"] == real(COUNTS + 100, labels)
    assert clustering_scores(labels, COUNTS, None)["was"] == real(COUNTS, labels)
    assert asked == 4


def test_without_class_counts_only_true_groups_score_clusters() -> None:
    labels = np.array([0, 0, 1, 1])
    assert clustering_scores(labels, None, None) == {}
    assert clustering_scores(labels, None, np.array([1, 1, 0, 0])) == {"rand": 1.0, "ari": 1.0}
    # None in another place is something else, also where the arrays are equal
    assert clustering_scores(labels, None, labels) != clustering_scores(labels, COUNTS, None)
