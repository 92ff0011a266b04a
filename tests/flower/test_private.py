"""Private losses over real messages: the same P and the same clusters, and nothing in any message that tells a loss."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.auto.beginnings import children
from fedgwc.algorithms.auto.readings import first_losses, loss_variances
from fedgwc.algorithms.method import MethodState
from fedgwc.cli.app import main
from fedgwc.core.errors import InputError
from fedgwc.core.layout import Layout
from fedgwc.core.types import Rng, TooFewReplies
from fedgwc.flower import Options, Strategy, client
from fedgwc.flower import private_client as keeping
from fedgwc.flower.engine import FlowerEngine
from fedgwc.flower.private_server import private_losses_for
from fedgwc.flower.roster import Roster
from fedgwc.flower.server import serve
from fedgwc.flower.state_dicts import StateDictWire
from fedgwc.runs.replay import read_trace, replay
from tests.conftest import Small

from . import blobs
from .grids import LocalGrid
from .spoiling import REWARD, SUM, kinds, on, readings_of, rewards_of, run, train
from .worlds import QUICK, BlobJob, MakeWorld, driver


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedgwc")


# The same results


@pytest.mark.parametrize("preset", ["auto", "fedgwc", "fedgwc-release"])
def test_the_same_interactions_and_clusters_as_with_open_losses(preset: str, small: Small, world: MakeWorld) -> None:
    """Plain and weighted statistics, normalised rewards, clients with fewer steps: P within 1e-6 in every round."""
    local = {"steps": None, "epochs": 1, "batch": 3}
    job = small(preset, local=local, algorithm={"rate": 0.5})
    open_, private = world(job), world(job, private_losses=True)
    states = [job.algorithm.init(job.initial(job.federation(), job.simulator(job.federation())), 20, Layout.unnamed(1))] * 2
    for number in range(1, 5):
        for i, here in enumerate((open_, private)):
            here.engine.begin_round(number, job.algorithm.clustering(states[i]).labels)
            states[i] = job.algorithm.round(states[i], here.engine, Rng(0, number))
        assert torch.equal(*(job.algorithm.clustering(s).models for s in states))
        for a, b in zip(*map(clusters_of, states), strict=True):
            np.testing.assert_allclose(a.P, b.P, atol=1e-6, rtol=0)
            np.testing.assert_array_equal(a.members, b.members)
            if preset == "auto":
                np.testing.assert_allclose([a.between, a.within], [b.between, b.within], rtol=1e-5)
                assert a.heard == b.heard == number
    assert clusters_of(states[0])[0].P.any()


def clusters_of(state: Any) -> Any:
    return state.groups.clusters if isinstance(state, MethodState) else state.clusters


def test_the_same_contrast_and_drift_as_with_open_losses(blob_job: BlobJob, world: MakeWorld) -> None:
    """The default's own rule hears the same numbers, and each cluster those of its own cohort."""
    job = blob_job(steps=3, name="auto")
    theta = job.simulator(job.federation()).model.vector()
    models, which = torch.stack([theta, theta + 0.3]), np.repeat([0, 1], 6)
    plain, here = world(job), world(job, private_losses=True)
    for _ in range(2):  # around 0, and around the last mean
        losses = train(plain, models=models, which=which).losses.numpy()
        got = readings_of(train(here, models=models, which=which)).numpy()
        for rows in (which == 0, which == 1):
            expected = [*loss_variances(losses[rows]), *first_losses(losses[rows])]
            np.testing.assert_allclose(got[rows], np.tile(expected, (6, 1)), rtol=1e-6)
        assert not np.isclose(got[0], got[-1]).any()

    clusters = []
    for w in (plain, here):
        state = job.algorithm.init(theta, 12, Layout.unnamed(1))
        for number in (1, 2, 3):
            w.engine.begin_round(number, np.zeros(12, np.int64))
            state = job.algorithm.round(state, w.engine, Rng(0, number))
        clusters.append(state.clusters[0])
    for name in ("between", "within", "first", "second"):
        assert getattr(clusters[0], name) == pytest.approx(getattr(clusters[1], name), rel=1e-6)
    counts = [(c.heard, c.apart, c.adrift) for c in clusters]
    assert counts[0] == counts[1]
    assert counts[0][0] == 3


def test_weighted_statistics_tell_no_more_than_rewards(blob_job: BlobJob, world: MakeWorld) -> None:
    updates = train(world(blob_job(steps=2, statistics="weighted"), private_losses=True))
    assert rewards_of(updates).isfinite().all()
    assert readings_of(updates).isnan().all()


def test_a_whole_run_and_what_it_leaves_behind(blob_job: BlobJob, tmp_path: Path) -> None:
    job = blob_job(rounds=7)
    _, expected, plain = run(job, tmp_path / "plain")
    grid, got, private = run(job, tmp_path / "private", private_losses=True)
    np.testing.assert_array_equal(got.labels, blobs.TRUTH)
    np.testing.assert_array_equal(got.labels, expected.labels)
    torch.testing.assert_close(got.models, expected.models)
    for path in sorted((plain.path / "splits").glob("*.npz")):
        one, other = np.load(path), np.load(private.path / "splits" / path.name)
        np.testing.assert_allclose(one["P"], other["P"], atol=1e-6, rtol=0)
    assert [r["clusters"] for r in private.metrics()] == [r["clusters"] for r in plain.metrics()]
    assert all("loss" not in r and r["accuracy"] >= 0 for r in private.metrics())
    assert {k: kinds(grid.seen).count(k) for k in ("train", SUM, REWARD)} == {"train": 21, SUM: 21, REWARD: 21}

    trace = read_trace(private.path)
    assert trace.losses.shape == (7, 12, 0)
    again = replay(trace, job.algorithm, seed=job.seed)
    np.testing.assert_array_equal(job.algorithm.clustering(again).labels, got.labels)
    command("replay", private.path, "--rounds", "5", "--export", tmp_path / "five.npz")
    assert trace.readings is not None
    np.testing.assert_array_equal(read_trace(tmp_path / "five.npz").readings, trace.readings[:5])
    pytest.importorskip("matplotlib")
    command("report", private.path, "--out", tmp_path / "report.html")


def command(*words: object) -> None:
    with pytest.raises(SystemExit) as end:
        main([str(w) for w in words])
    assert end.value.code == 0


def test_no_message_tells_a_loss(blob_job: BlobJob, world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number in every reply is compared with every loss, to single precision."""
    here = world(blob_job(steps=3), private_losses=True)
    replies: list[Any] = []
    losses: list[Any] = []
    real = client.train_one

    def keep_reply(_: Message, reply: Message) -> Message:
        replies.append(reply)
        return reply

    def keep_loss(*arguments: Any) -> Any:
        losses.append(real(*arguments))
        return losses[-1]

    here.grid.spoil = dict.fromkeys(here.grid.nodes, keep_reply)
    monkeypatch.setattr(client, "train_one", keep_loss)
    updates = train(here)
    keep = np.concatenate([x.numpy() for _, x in losses])
    assert updates.losses.shape == (12, 0)
    assert updates.rewards is not None
    assert rewards_of(updates).shape == (12,)
    said = [
        v
        for m in replies
        for record in m.content.metric_records.values()
        for values in record.values()
        for v in np.atleast_1d(values)
        if isinstance(v, float)
    ]
    assert len(said) == 12  # the rewards, and nothing else that is not a count
    assert not np.isclose(np.array(said)[:, None], keep, rtol=1e-6).any()
    words = np.concatenate([m.content["sums"]["model-0"].numpy().ravel() for m in replies if "sums" in m.content])
    assert len(words) == 3 * 2 * 2 * 3  # nodes, words, moments, steps
    means = np.concatenate([m.content["means"]["model-0"].numpy() for m in replies if "means" in m.content])
    assert len(means) == 3 * 2  # nodes, words
    for masked in (words, means):
        assert (masked > 2**50).mean() > 0.5  # open, all would be far below; masked, one in 16,384 is


def test_fedavg_and_ifca_need_no_losses(small: Small, world: MakeWorld) -> None:
    for name in ("fedavg", "fedprox", "ifca"):
        job = small(name, rounds=2)
        open_, private = world(job, min_replies=1), world(job, min_replies=1, private_losses=True)
        start = job.initial(job.federation(), job.simulator(job.federation()))
        states = [job.algorithm.init(start, 20, Layout.unnamed(1))] * 2
        before = len(private.grid.seen)
        for number in (1, 2):
            for i, here in enumerate((open_, private)):
                here.engine.begin_round(number, job.algorithm.clustering(states[i]).labels)
                states[i] = job.algorithm.round(states[i], here.engine, Rng(0, number))
        torch.testing.assert_close(*(job.algorithm.clustering(s).models for s in states), rtol=0, atol=0)
        assert set(kinds(private.grid.seen[before:])) <= {"train", "evaluate"}  # one exchange, or IFCA's two
        assert np.isnan(private.engine.median_loss)


def test_a_newcomer_tells_only_which_model_it_likes(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=1), private_losses=True, min_replies=1)
    theta = here.job.simulator(here.job.federation()).model.vector()
    scores = here.engine.evaluate(np.array([0, 0]), torch.stack([theta, theta * 1e3]), np.array([0, 1]), "train")
    assert scores.loss.tolist() == [0.0, 1.0]
    assert np.isnan(here.engine.evaluate(np.array([0]), theta[None], np.array([0])).loss).all()
    assert here.engine.losses(["3"], torch.stack([theta * 1e3, theta]))["3"].tolist() == [1.0, 0.0]


class Losing:
    """An app of one's own, one client per node."""

    def __init__(self, losses: list[float], mods: list[Any]) -> None:
        self.app = keeping.private_losses(ClientApp())

        @self.app.train(mods=mods)
        def train(message: Message, context: Context) -> Message:
            metrics = MetricRecord({"num-examples": 10, "losses": losses})
            return Message(RecordDict({"arrays": message.content["arrays"], "mine": metrics}), reply_to=message)


def own_apps(rounds: int, mods: list[Any]) -> tuple[Strategy, LocalGrid]:
    grid = LocalGrid()
    for i in range(4):
        grid.add(i + 1, Losing([float(i), 1.0], mods).app)
    strategy = Strategy(rate=1.0, options=Options(min_clients=4, private_losses=True, **{**QUICK, "retries": 1}))
    strategy.start(grid, ArrayRecord({"w": torch.zeros(2)}), rounds, 0.3)
    return strategy, grid


def test_an_app_of_ones_own_keeps_its_losses(tmp_path: Path) -> None:
    strategy, grid = own_apps(2, [keeping.keep_losses])
    assert set(strategy.labels.values()) == {0}
    assert {k: kinds(grid.seen).count(k) for k in (SUM, REWARD)} == {SUM: 8, REWARD: 8}


def test_an_app_without_the_mod_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InputError, match="too few replies"):
        own_apps(1, [])
    assert "does its app lack the mod keep_losses?" in caplog.text


def test_where_losses_cannot_be_compared_a_newcomer_joins_the_largest_cluster(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=1))
    algorithm, grid = Auto(), here.grid
    theta = torch.zeros(2)
    root = algorithm.init(theta, 12, Layout.unnamed(1))
    parts = children(algorithm, root.clusters[0], np.array([0] * 5 + [1] * 7), {}, 1, 1)
    here.engine.wire = StateDictWire.of(ArrayRecord({"w": theta}), {}, private=True)
    here.tracker.newcomers["late"] = 102
    before = len(grid.seen)
    grown = driver(here, algorithm).site.enter(2, algorithm, replace(root, clusters=tuple(parts)))
    assert [len(c.members) for c in grown.clusters] == [5, 8]
    assert len(grid.seen) == before


# What is refused


@pytest.mark.parametrize("name", ["cfl", "fesem"])
def test_algorithms_that_compare_updates_are_refused(name: str, small: Small, tmp_path: Path) -> None:
    job = small(name)
    with pytest.raises(InputError, match=r"private-losses does not go with (CFL|FeSEM).*use auto, fedgwc"):
        serve(job, LocalGrid(), tmp_path / "run", Options(private_losses=True))
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="does not go with"):
        Strategy(ALGORITHMS[name], options=Options(private_losses=True))


def test_an_app_of_ones_own_is_not_asked_to_compare_models_in_private() -> None:
    """It could only answer with losses, and be excluded for that."""
    wire = StateDictWire.of(ArrayRecord({"w": Array(np.zeros(2))}), {}, private=True)
    engine = FlowerEngine(LocalGrid(), Roster(), wire)
    with pytest.raises(TooFewReplies, match="cannot compare models in private"):
        engine.evaluate(np.arange(3), torch.zeros(2, 2), np.zeros(3, np.int64), split="train")


@pytest.mark.parametrize("name", ["alone", "fedavg", "ifca"])
def test_who_never_looks_at_losses_needs_no_exchange(name: str) -> None:
    assert private_losses_for(ALGORITHMS[name]) is None


def test_a_node_that_insists_answers_nothing_else(blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture) -> None:
    here = world(blob_job(steps=1), min_replies=1)
    here.grid.nodes[101][1].node_config["private-losses"] = True
    assert set(train(here).clients) == {0, 1, 2, 3, 8, 9, 10, 11}
    assert "this node keeps its losses private" in caplog.text
    theta = here.job.simulator(here.job.federation()).model.vector()
    assert not len(here.engine.evaluate(np.array([5]), theta[None], np.array([0])).clients)


def test_losses_in_the_open_are_an_invalid_reply(blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture) -> None:
    here = world(blob_job(steps=1), private_losses=True)

    def tell(reply: Message) -> Message:
        reply.content.metric_records["client-5"]["losses"] = [1.0]
        return reply

    here.grid.spoil[101] = on("train", tell)
    updates = train(here)
    assert 5 not in updates.clients
    assert "dropped the reply of client 5" in caplog.text
    assert rewards_of(updates).isfinite().all()  # the others' sum is asked without it
