"""Private losses over real messages: the same P and the same clusters, and nothing in any message that tells a loss."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.auto.beginnings import children
from fedgwc.algorithms.auto.readings import first_losses, loss_variances
from fedgwc.algorithms.fedgwc.rewards import gaussian_rewards
from fedgwc.algorithms.method import MethodState
from fedgwc.cli.app import main
from fedgwc.core.errors import InputError
from fedgwc.core.layout import Layout
from fedgwc.core.types import Rng, TooFewReplies
from fedgwc.flower import Options, Strategy, client
from fedgwc.flower import private_client as keeping
from fedgwc.flower.engine import FlowerEngine
from fedgwc.flower.masking import public_key
from fedgwc.flower.private_client import masked_sums, own_rewards
from fedgwc.flower.private_server import private_losses_for
from fedgwc.flower.roster import Roster
from fedgwc.flower.server import serve
from fedgwc.flower.state_dicts import StateDictWire
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.replay import read_trace, replay
from tests.conftest import Small

from . import blobs
from .grids import LocalGrid
from .spoiling import train
from .worlds import QUICK, BlobJob, MakeWorld, World, driver, nodes_for

SUM, REWARD = "query.losses_sum", "query.losses_reward"


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedgwc")


def kinds(messages: Any) -> list[str]:
    return [m.metadata.message_type for m in messages]


def on(kind: str, change: Any):
    """Applies to replies to one kind of message only."""

    def spoil(question: Message, reply: Message) -> Message | None:
        return change(reply) if question.metadata.message_type == kind else reply

    return spoil


def lose(here: World, node: int, kind: str, how: str) -> None:
    def spoil(question: Message, reply: Message) -> Message | None:
        if question.metadata.message_type != kind:
            return reply
        return None if how == "silent" else Message(Error(2, "ValueError: no"), reply_to=question)

    here.grid.spoil[node] = spoil


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


def clusters_of(state: Any):
    return state.groups.clusters if isinstance(state, MethodState) else state.clusters


def test_the_same_contrast_and_drift_as_with_open_losses(blob_job: BlobJob, world: MakeWorld) -> None:
    """The default's own rule hears the same numbers, and each cluster those of its own cohort."""
    job = blob_job(steps=3, name="auto")
    theta = job.simulator(job.federation()).model.vector()
    models, which = torch.stack([theta, theta + 0.3]), np.repeat([0, 1], 6)
    plain, here = world(job), world(job, private_losses=True)
    for _ in range(2):  # around 0, and around the last mean
        losses = train(plain, models=models, which=which).losses.numpy()
        got = train(here, models=models, which=which).readings.numpy()
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
    assert updates.rewards.isfinite().all()
    assert updates.readings.isnan().all()


def run(job: Experiment, out, **options):
    grid = LocalGrid()
    nodes_for(grid, job)
    clustering = serve(job, grid, out, Options(min_clients=12, **{**QUICK, **options}))
    return grid, clustering, RunFolder(out)


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
    np.testing.assert_array_equal(read_trace(tmp_path / "five.npz").readings, trace.readings[:5])
    pytest.importorskip("matplotlib")
    command("report", private.path, "--out", tmp_path / "report.html")


def command(*words) -> None:
    with pytest.raises(SystemExit) as end:
        main([str(w) for w in words])
    assert end.value.code == 0


def test_no_message_tells_a_loss(blob_job: BlobJob, world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number in every reply is compared with every loss, to single precision."""
    here = world(blob_job(steps=3), private_losses=True)
    told: list[Message] = []
    for node in here.grid.nodes:
        here.grid.spoil[node] = lambda _, reply: told.append(reply) or reply
    losses = []
    real = client.train_one
    monkeypatch.setattr(client, "train_one", lambda *a: losses.append(real(*a)) or losses[-1])
    updates = train(here)
    keep = np.concatenate([x.numpy() for _, x in losses])
    assert updates.losses.shape == (12, 0)
    assert updates.rewards.shape == (12,)
    said = [
        v
        for m in told
        for record in m.content.metric_records.values()
        for values in record.values()
        for v in np.atleast_1d(values)
        if isinstance(v, float)
    ]
    assert len(said) == 12  # the rewards, and nothing else that is not a count
    assert not np.isclose(np.array(said)[:, None], keep, rtol=1e-6).any()
    words = np.concatenate([m.content["sums"]["model-0"].numpy().ravel() for m in told if "sums" in m.content])
    assert len(words) == 3 * 2 * 2 * 3  # nodes, words, moments, steps
    means = np.concatenate([m.content["means"]["model-0"].numpy() for m in told if "means" in m.content])
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

    def __init__(self, losses: list[float], mods: list) -> None:
        self.app = keeping.private_losses(ClientApp())

        @self.app.train(mods=mods)
        def train(message: Message, context: Context) -> Message:
            metrics = MetricRecord({"num-examples": 10, "losses": losses})
            return Message(RecordDict({"arrays": message.content["arrays"], "mine": metrics}), reply_to=message)


def own_apps(rounds: int, mods: list) -> tuple[Strategy, LocalGrid]:
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
    assert updates.rewards.isfinite().all()  # the others' sum is asked without it


# Nodes that fail in one of the three exchanges


@pytest.mark.parametrize("how", ["silent", "error"])
def test_a_node_lost_in_training_leaves_the_others_their_rewards(how: str, blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=2), private_losses=True)
    plain = world(here.job)
    for w in (here, plain):
        lose(w, 101, "train", how)
    got, expected = train(here), train(plain)
    assert got.clients.tolist() == expected.clients.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    np.testing.assert_allclose(got.rewards, gaussian_rewards(expected.losses.numpy()), atol=1e-6)


@pytest.mark.parametrize("how", ["silent", "error"])
def test_a_node_lost_before_the_sum_costs_its_cohort_the_rewards_and_no_more(
    how: str, blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Two models: the lost node has clients of the first only, so the second's cohort goes on."""
    here = world(blob_job(steps=2), private_losses=True)
    lose(here, 100, SUM, how)
    models = torch.stack([here.job.simulator(here.job.federation()).model.vector()] * 2)
    updates = train(here, range(12), models, [0] * 6 + [1] * 6)
    assert updates.clients.tolist() == list(range(12))  # all models count
    assert updates.rewards.isnan().tolist() == [True] * 6 + [False] * 6
    assert "model 0: 1 of 2 nodes sent their sum; no rewards" in caplog.text
    sums = [m for m in here.grid.seen if m.metadata.message_type == SUM]
    assert len(sums) == 3  # never asked a second time


def test_without_rewards_the_model_moves_and_p_stays(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=2), private_losses=True)
    lose(here, 100, SUM, "error")
    algorithm, theta = here.job.algorithm, here.job.simulator(here.job.federation()).model.vector()
    state = algorithm.init(theta, 12, Layout.unnamed(1))
    here.engine.begin_round(1, np.zeros(12, np.int64))
    after = algorithm.round(state, here.engine, Rng(0, 1))
    assert not after.groups.clusters[0].visits.any()
    assert not torch.equal(after.servers[0].theta, theta)


@pytest.mark.parametrize("how", ["silent", "error"])
def test_a_node_lost_before_the_reward_is_missing_rewards(how: str, blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=2), private_losses=True)
    lose(here, 102, REWARD, how)
    updates = train(here)
    assert updates.rewards.isnan().tolist() == [False] * 8 + [True] * 4
    assert updates.readings.isnan().all()


def test_rewards_that_are_none_are_invalid_and_struck(
    blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    here = world(blob_job(steps=2), private_losses=True)
    for value in (1.5, -0.1, float("nan")):

        def change(reply: Message, value: float = value) -> Message:
            reply.content["rewards"]["client-5"] = value
            return reply

        here.grid.spoil[101] = on(REWARD, change)
        assert train(here).rewards.isnan().nonzero().flatten().tolist() == [5]
    assert "excluded client 5 after 3 invalid replies in a row" in caplog.text


def test_sums_of_the_wrong_shape_are_invalid(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=2), private_losses=True)

    def cut(reply: Message) -> Message:
        del reply.content["sums"]
        return reply

    here.grid.spoil[101] = on(SUM, cut)
    assert train(here).rewards.isnan().all()
    assert here.roster.invalid == {4: 1, 5: 1, 6: 1, 7: 1}
    assert here.roster.strikes == {4: 1, 5: 1, 6: 1, 7: 1}  # a good training does not make up for it


def test_a_spoiled_sum_gives_no_rewards(blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture) -> None:
    here = world(blob_job(steps=2), private_losses=True)

    def noise(reply: Message) -> Message:
        words = np.random.default_rng(0).integers(0, 2**64, (2, 2, 2), np.uint64)
        reply.content["sums"]["model-0"] = Array(words)
        return reply

    here.grid.spoil[101] = on(SUM, noise)
    assert train(here).rewards.isnan().all()
    assert "somebody spoiled the sum" in caplog.text


def test_without_every_sum_of_means_there_are_rewards_and_no_readings(
    blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A node of an older version sends none; one that spoils it is noticed; one that sends something else is struck."""
    here = world(blob_job(steps=2), private_losses=True)

    def sent(value: Array | None):
        def change(reply: Message) -> Message:
            reply.content["means"] = ArrayRecord({} if value is None else {"model-0": value})
            return reply

        return on(REWARD, change)

    for value, why in ((None, "2 of 3 nodes sent their sum of means"), (Array(np.ones(2, np.uint64)), "somebody spoiled")):
        here.grid.spoil[101] = sent(value)
        updates = train(here)
        assert updates.rewards.isfinite().all()
        assert updates.readings.isnan().all()
        assert why in caplog.text
        assert not here.roster.invalid
    here.grid.spoil[101] = sent(Array(np.ones(3, np.uint64)))
    assert train(here).rewards.isnan().nonzero().flatten().tolist() == [4, 5, 6, 7]
    assert set(here.roster.invalid) == {4, 5, 6, 7}


@pytest.mark.parametrize("key", [bytes(32), b"short", "text", None])
def test_a_key_that_is_none_is_an_invalid_reply(key: object, blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=1), private_losses=True)

    def change(reply: Message) -> Message:
        reply.content["party"] = ConfigRecord({} if key is None else {"key": key})
        return reply

    here.grid.spoil[101] = on("train", change)
    updates = train(here)
    assert updates.clients.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert updates.rewards.isfinite().all()
    assert set(here.roster.invalid) == {4, 5, 6, 7}


def test_a_round_done_again_gives_no_second_sum(blob_job: BlobJob, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server died between the sums and the checkpoint: the same losses would be summed in another company."""
    job = blob_job(rounds=3, steps=1)
    run(job, tmp_path / "r", private_losses=True)
    sums = tmp_path / "r" / "state" / "summed"
    assert sums.read_text() == "3"
    (tmp_path / "r" / "state" / "00000003.ckpt").unlink()
    grid, _, folder = run(job, tmp_path / "r", private_losses=True)
    assert "train" in kinds(grid.seen)
    assert SUM not in kinds(grid.seen)
    assert "round 3 is done again" in caplog.text
    assert [r["round"] for r in folder.metrics()] == [1, 2, 3]
    for seen in (read_trace(tmp_path / "r").rewards, read_trace(tmp_path / "r").readings):
        assert np.isfinite(seen[:2]).all()
        assert np.isnan(seen[2]).all()


@pytest.mark.parametrize("raw", [b"", b"three", b"\xff"])
def test_a_note_that_cannot_be_read_is_named(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "summed").write_bytes(raw)
    private = private_losses_for(ALGORITHMS["auto"], tmp_path / "summed")
    with pytest.raises(InputError, match=r"summed should hold the number of the last round .* write the last"):
        private.rewards_and_readings([], pytest.fail, 4, 1e-7)
    (tmp_path / "summed").write_text("3\n")
    private.rewards_and_readings([], lambda *_: [], 4, 1e-7)
    assert (tmp_path / "summed").read_text() == "4"


# What a node checks for itself


@pytest.fixture
def asked(blob_job: BlobJob, world: MakeWorld):
    """A node with clients 4 to 7 after a training, and the question for sums that it got."""
    here = world(blob_job(steps=2), private_losses=True)
    stop = []
    here.grid.spoil[101] = lambda question, reply: (
        stop.append(question.content) or None if question.metadata.message_type == SUM else reply
    )
    app, context = here.grid.nodes[101]
    fresh = {}

    def remember(message: Message, ctx: Context) -> Message:
        reply = app(message, ctx)
        if message.metadata.message_type == "train":
            fresh["state"] = RecordDict(dict(ctx.state))
        return reply

    here.grid.nodes[101] = remember, context
    train(here)
    return fresh["state"], stop[0]


def test_losses_are_summed_once_and_rewarded_once(asked: tuple[RecordDict, RecordDict]) -> None:
    state, question = asked
    masked_sums(state, question)
    with pytest.raises(InputError, match="no losses that have not been summed"):
        masked_sums(state, question)
    statistics = RecordDict({"model-0": ConfigRecord({"mean": [1.0, 1.0], "variance": [0.5, 0.0]})})
    assert len(own_rewards(state, statistics)["rewards"]) == 4
    with pytest.raises(InputError, match="told its rewards already"):
        own_rewards(state, statistics)
    assert not state  # the losses and the key are gone


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"steps": [2, 2], "mine": ["client-4"]}, "needs 3 clients"),
        ({"mine": []}, "needs 3 clients"),
        ({"mine": ["client-4", "client-4"]}, "one sum only"),
        ({"centre": [float("nan"), 0.0]}, "too large"),
        ({"centre": [1e300, 0.0]}, "too large"),
    ],
)
def test_a_sum_in_bad_company_is_refused(change: Any, match: str, asked: tuple[RecordDict, RecordDict]) -> None:
    state, question = asked
    before = dict(state)
    record = ConfigRecord({**question["model-0"], **change})
    with pytest.raises(InputError, match=match), np.errstate(over="ignore"):
        masked_sums(state, RecordDict({"model-0": record}))
    assert dict(state) == before  # nothing was revealed, so nothing is spent


def test_alone_a_node_gives_the_sum_of_three_and_not_of_two(asked: tuple[RecordDict, RecordDict]) -> None:
    state, question = asked
    asked_ = question["model-0"]
    own = [k for k in asked_["keys"] if _is_mine(state, k)]
    two = ConfigRecord({**asked_, "keys": own, "steps": [2, 2, 2], "mine": ["client-4", "client-5"]})
    with pytest.raises(InputError, match="of 1 nodes is refused"):
        masked_sums(state, RecordDict({"model-0": two}))
    posed = ConfigRecord({**asked_, "keys": own * 3, "steps": [2, 2, 2], "mine": ["client-4"]})
    with pytest.raises(InputError, match="of 1 nodes is refused"):
        masked_sums(state, RecordDict({"model-0": posed}))  # its own key, posing as three
    three = ConfigRecord({**asked_, "keys": own, "steps": [2, 2, 2], "mine": ["client-4", "client-5", "client-6"]})
    with pytest.raises(InputError, match="one sum only"):
        masked_sums(state, RecordDict({"model-0": three, "model-1": ConfigRecord(dict(three))}))
    assert masked_sums(state, RecordDict({"model-0": three}))["sums"]


def _is_mine(state: RecordDict, key: bytes) -> bool:
    return public_key(state["fedgwc-secret"]["secret"]) == key


@pytest.mark.parametrize("told", [{"mean": [1.0], "variance": [1.0, 1.0]}, {"mean": [1.0], "variance": [-1.0]}])
def test_statistics_that_are_none_are_refused(told: Any, asked: tuple[RecordDict, RecordDict]) -> None:
    state, question = asked
    masked_sums(state, question)
    with pytest.raises(InputError, match="mean and variance"):
        own_rewards(state, RecordDict({"model-0": ConfigRecord(told)}))


@pytest.mark.parametrize("private", [False, True])
def test_a_client_with_an_absurd_loss_leaves_itself_out(
    private: bool, blob_job: BlobJob, world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = client.train_one

    def absurd(engine, place, number: Any, *more):
        theta, losses = real(engine, place, number, *more)
        return theta, losses + (2e6 if number == 5 else 0)

    monkeypatch.setattr(client, "train_one", absurd)
    job = blob_job(steps=2)
    here = world(job, private_losses=private)
    updates = train(here)
    assert 5 not in updates.clients
    assert len(updates) == 11
    assert updates.rewards is None or updates.rewards.isfinite().all()
    assert not here.roster.invalid


def test_options_come_from_the_run_configuration() -> None:
    assert Options.read({"private-losses": True, "out": "x"}).private_losses
    assert not Options.read({}).private_losses
