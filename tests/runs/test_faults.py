"""Clients whose numbers go wrong: the run goes on, they are counted, and nothing that is not finite enters a model or P."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.fedgwc.clustering import fedgw_cluster
from fedgwc.algorithms.fedgwc.interactions import affinity
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import Algorithm
from fedgwc.core.types import Ids, Rng, Scores, Split, TooFewReplies, Updates
from fedgwc.core.work import LocalTraining, Work
from fedgwc.data.federation import Federation, from_arrays
from fedgwc.engines.meter import Meter
from fedgwc.engines.settings import EngineSettings
from fedgwc.engines.simulator import Simulator
from fedgwc.models import MODELS
from fedgwc.runs.experiment import experiment
from fedgwc.runs.loop import run
from fedgwc.runs.replay import can_replay, clusters_of
from fedgwc.training.flat_model import FlatModel
from tests.conftest import Listener, Small

NO_SHRINKING = (Phase.explicit, Phase.generate)  # a whole run is costly, and small as it is
KINDS = ("plain", "one sample", "one class", "constant", "copies", "large", "overflowing")
SCALES = {"large": 1e9, "overflowing": 3e38, "constant": 0.0}


@st.composite
def federations(draw: st.DrawFn) -> tuple[Federation, list[str]]:
    """3 to 8 clients of 1 to 5 training samples with 4 features and 3 classes, any of them odd."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=3, max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    x, y, client, is_test = [], [], [], []
    for k, kind in enumerate(kinds):
        n = 1 if kind == "one sample" else draw(st.integers(1, 5))
        labels = np.zeros(n + 1) if kind == "one class" else rng.integers(0, 3, n + 1)
        samples = rng.uniform(-1, 1, (n + 1, 4)) * SCALES.get(kind, 1.0)
        x.append(np.broadcast_to(samples[:1], samples.shape) if kind == "copies" else samples)
        y.append(labels)
        client += [k] * (n + 1)
        is_test += [False] * n + [True]
    made = from_arrays(
        np.concatenate(x).astype(np.float32), np.concatenate(y), np.array(client), is_test=np.array(is_test), n_classes=3
    )
    return made, kinds


def check(algorithm: Algorithm[Any], state: Any, n_clients: int) -> None:
    clustering = algorithm.clustering(state)
    assert torch.isfinite(clustering.models).all()
    assert len(clustering.labels) == n_clients
    assert set(clustering.labels.tolist()) <= set(range(len(clustering.models)))
    if can_replay(algorithm):  # from rewards
        for cluster in clusters_of(state):
            assert ((cluster.P >= 0) & (cluster.P <= 1)).all()
            assert np.isfinite(cluster.gamma).all()


def algorithm_of(name: str) -> Algorithm[Any]:
    eager = {"min_size": 1, "visits": 1} if name.startswith("auto") else {}
    return experiment({"algorithm": {"name": name, "rate": 0.7, **eager}}).algorithm


@pytest.mark.parametrize("name", ALGORITHMS)
@given(federations(), st.sampled_from([0.1, 10.0, 1e6]))
@settings(
    deadline=None,
    max_examples=8,
    phases=NO_SHRINKING,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_a_run_survives_odd_clients(name: str, made: tuple[Federation, list[str]], lr: float) -> None:
    federation, kinds = made
    algorithm = algorithm_of(name)
    torch.manual_seed(0)
    module = MODELS["mlp"]((4,), 3, hidden=(3,))
    engine = Simulator(federation, module, LocalTraining(steps=2, batch=2, lr=lr), EngineSettings(how="one-by-one"))
    meter = Meter(engine, federation.n_clients)
    n_models = getattr(algorithm, "n_models", None)
    start = engine.model.vector() if n_models is None else torch.stack([engine.model.vector() + 0.1 * i for i in range(n_models)])
    state = algorithm.init(start, federation.n_clients, Layout.unnamed(start.shape[-1]))
    for number in range(1, 6):
        state = algorithm.round(state, meter, Rng(0, number))
        check(algorithm, state, federation.n_clients)
    if lr == 0.1 and not {"large", "overflowing"} & set(kinds):  # a huge step spoils the common model: then anybody may fail
        assert not meter.failures.any()


class Made:
    """An engine whose clients answer with drawn numbers: any finite losses, any finite models. They are never evaluated."""

    def __init__(self, losses: np.ndarray, models: np.ndarray, absent: set[int]) -> None:
        self.losses, self.models, self.absent = torch.from_numpy(losses), torch.from_numpy(models), absent

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        there = np.array([k for k in clients if k not in self.absent], np.int64)
        at = torch.from_numpy(there)
        sizes = torch.ones(len(there), dtype=torch.int64)
        return Updates(there, self.models[at], self.losses[at], sizes)

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        raise TooFewReplies


EXTREME = st.sampled_from([0.0, 1.0, 1.0 + 2**-23, 1e-30, 1e4, 1e18, 1e30, 3e38])


@pytest.mark.parametrize("name", [n for n in ALGORITHMS if n != "ifca"])  # which asks for evaluations, not for losses
@given(st.data(), st.integers(3, 7))
@settings(deadline=None, max_examples=15, phases=NO_SHRINKING)
def test_any_finite_answers_leave_the_state_finite(name: str, data: st.DataObject, n: int) -> None:
    """Equal, constant, far apart or exploding: losses and models up to the largest float, and clients that never answer."""
    losses = data.draw(arrays(np.float32, (n, 2), elements=EXTREME))
    signs = data.draw(arrays(np.float32, (n, 3), elements=st.sampled_from([-1.0, 1.0])))
    models = data.draw(arrays(np.float32, (n, 3), elements=EXTREME)) * signs
    engine = Made(losses, models, data.draw(st.sets(st.integers(0, n - 1), max_size=2)))
    algorithm = algorithm_of(name)
    state = algorithm.init(torch.zeros(3), n, Layout.unnamed(3))
    for number in range(1, 6):
        state = algorithm.round(state, engine, Rng(0, number))
        check(algorithm, state, n)


BLOCKS = st.sampled_from([0.0, 0.3, 0.5, 1.0, 1e-12])


@given(st.data(), st.integers(2, 9), st.sampled_from([0.01, 0.5, 50.0]))
@settings(deadline=None, max_examples=40)
@pytest.mark.parametrize("assign", ["kmeans", "cluster_qr"])
@pytest.mark.parametrize("score", ["affinity", "embedding"])
def test_clustering_takes_any_interaction_matrix(assign: Any, score: Any, data: st.DataObject, K: int, beta: float) -> None:
    """Pairs that never met (0), equal rows, few distinct values: disconnected and rank-deficient affinities among them."""
    P = data.draw(arrays(np.float64, (K, K), elements=BLOCKS))
    if data.draw(st.booleans()):  # two groups that never met
        P[: K // 2, K // 2 :] = P[K // 2 :, : K // 2] = 0.0
    assert np.isfinite(affinity(P, beta)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels, scores = fedgw_cluster(P, beta, 5, assign=assign, score=score)
    assert sorted(set(labels.tolist())) == list(range(labels.max() + 1))
    assert not any(np.isnan(s) for s in scores.values())


def test_a_failed_client_is_told_of_once_and_counted(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Listener()
    original = Simulator.train

    def without_3(self: Simulator, *args: object) -> Updates:
        updates = original(self, *args)  # type: ignore[arg-type]
        return updates.rows(np.flatnonzero(updates.clients != 3))

    monkeypatch.setattr(Simulator, "train", without_3)
    result = run(small(rounds=6, algorithm={"rate": 1.0}), tmp_path / "r", progress=watcher)
    assert watcher.heard == ["client 3 failed in round 1 (its model or loss is not finite) and was left out"]
    assert result.last["failures"] == 6
    with np.load(tmp_path / "r" / "per_client.npz") as file:
        assert file["failures"].tolist() == [6 if k == 3 else 0 for k in range(20)]


def test_a_diverging_client_does_not_stop_the_others(small: Small) -> None:
    """One client's images are 1e20 times too bright: its loss is infinite in the first step, and only its own."""
    job = small("auto", algorithm={"rate": 1.0})
    federation = job.federation()
    federation.x[torch.from_numpy(federation.train[0])] *= 1e20
    meter = Meter(job.simulator(federation), 20)
    start = FlatModel(job.module(federation)).vector()
    state = job.algorithm.init(start, 20, Layout.unnamed(len(start)))
    for number in range(1, 5):
        state = job.algorithm.round(state, meter, Rng(0, number))
    assert meter.failures.tolist() == [4] + [0] * 19
    check(job.algorithm, state, 20)
