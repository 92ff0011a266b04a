"""Validation samples and newcomers in runs: what is measured on them, and that nobody trains on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import run
from fedgwc.runs.together import run_together
from tests.conftest import Small

HELD = {"validation": 0.2, "newcomers": 0.2}


def test_a_run_measures_validation_samples_and_newcomers(small: Small, tmp_path: Path) -> None:
    job = small("ifca", data=HELD)
    result = run(job, tmp_path / "r")
    federation = job.federation()
    new = federation.newcomers
    assert new is not None
    assert (federation.n_clients, new.n_clients) == (16, 4)
    trained = RunFolder(tmp_path / "r").trace()["ids"]
    assert set(trained[trained >= 0]) <= set(range(16))

    engine, models = job.simulator(federation), result.clustering.models
    ids = 16 + np.arange(4)
    losses = np.array([engine.evaluate(ids, models, np.full(4, m), "train").loss for m in range(len(models))])
    served = engine.evaluate(ids, models, losses.argmin(0))
    assert result.last["newcomers_accuracy"] == pytest.approx((served.correct.sum(1) / served.total.sum(1)).mean())
    own = engine.evaluate(np.arange(16), models, result.clustering.labels, "validation")
    assert result.last["validation_loss"] == pytest.approx(own.loss.mean())


def test_who_has_a_model_of_its_own_serves_no_newcomer(small: Small, tmp_path: Path) -> None:
    last = run(small("alone", data=HELD), tmp_path / "r").last
    assert "validation_accuracy" in last
    assert not any(key.startswith("newcomers") for key in last)


def test_hits_add_up_to_accuracies(small: Small, tmp_path: Path) -> None:
    run(small("fedavg", data=HELD), tmp_path / "r")
    scores = np.load(tmp_path / "r" / "per_client.npz")
    for kind in ("", "newcomers_"):
        offsets = scores[f"{kind}hits_offsets"]
        right = np.add.reduceat(scores[f"{kind}hits"].astype(float), offsets[:-1]) / np.diff(offsets)
        np.testing.assert_allclose(right, scores[f"{kind}accuracy"])


def test_newcomers_are_the_same_where_runs_share_an_engine(small: Small, tmp_path: Path) -> None:
    jobs = [small(name, seed=seed, data=HELD) for seed, name in enumerate(("fedavg", "ifca"))]
    together = run_together([(job, tmp_path / f"t{i}") for i, job in enumerate(jobs)])
    for i, (job, shared) in enumerate(zip(jobs, together, strict=True)):
        alone = run(job, tmp_path / f"a{i}").last
        for key in ("newcomers_accuracy", "newcomers_loss", "validation_accuracy", "validation_loss", "accuracy"):
            assert shared.last[key] == pytest.approx(alone[key], rel=1e-4), key
