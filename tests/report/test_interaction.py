"""What is shown of P, its affinities, the weights and the mse is what the run measured."""

from __future__ import annotations

import numpy as np
import pytest

from fedgwc.report import build
from fedgwc.report.convergence import mse_by_cluster, trace_of
from fedgwc.report.load import load
from fedgwc.report.matrices import algorithm_of, at_end, by_losses, whole_federation
from fedgwc.report.weights import weights_of
from tests.report.conftest import Finished


def test_the_mse_is_what_the_run_measured(finished: Finished) -> None:
    folder = finished("fedgwc", algorithm={"eps": 1e-12})  # no split: the run's mean over clusters is the root's
    run = load(folder)
    algorithm, trace = algorithm_of(run), trace_of(run)
    assert algorithm is not None
    assert trace is not None
    x, y = mse_by_cluster(trace, algorithm, 0)[0]
    measured = {row["round"]: row["mse"] for row in run.metrics}
    assert [y[list(x).index(t)] for t in measured] == pytest.approx(list(measured.values()))


def test_accuracies_of_clients_average_to_the_run_s(finished: Finished) -> None:
    run = load(finished("ifca"))
    assert run.per_client is not None
    for mine, theirs in (("accuracy", "accuracy"), ("balanced", "balanced_accuracy"), ("weighted", "weighted_accuracy")):
        assert np.nanmean(run.per_client[mine]) == pytest.approx(run.last[theirs])


def test_the_whole_matrix_holds_every_cluster_s_own(finished: Finished) -> None:
    run = load(finished("fedgwc"))
    algorithm = algorithm_of(run)
    rule = by_losses(algorithm)
    assert algorithm is not None
    assert rule is not None
    P, W = whole_federation(run, rule)
    for m in at_end(run):
        np.testing.assert_array_equal(P[np.ix_(m.members, m.members)], m.P)
    np.testing.assert_allclose(W, W.T)
    for w in weights_of(run, algorithm):
        assert (w.low <= w.gamma + 1e-12).all()
        assert (w.gamma <= w.high + 1e-12).all()


def test_of_many_clients_some_are_drawn(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedgwc.report.interaction.MOST_POINTS", 10)
    [section] = [s for s in build([finished("fedgwc")]).sections if s.id == "embedding"]
    assert "Of more than 10 clients that many are drawn." in section.note
