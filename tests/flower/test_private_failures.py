"""Private losses where a node fails in one of the three exchanges, or sends what cannot be."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.fedgwc.rewards import gaussian_rewards
from fedgwc.core.errors import InputError
from fedgwc.core.layout import Layout
from fedgwc.core.types import Rng
from fedgwc.flower.private_server import private_losses_for
from fedgwc.runs.replay import read_trace

from .grids import Spoil
from .spoiling import REWARD, SUM, kinds, lose, on, readings_of, rewards_of, run, train
from .worlds import BlobJob, MakeWorld


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedgwc")


@pytest.mark.parametrize("how", ["silent", "error"])
def test_a_node_lost_in_training_leaves_the_others_their_rewards(how: str, blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=2), private_losses=True)
    plain = world(here.job)
    for w in (here, plain):
        lose(w, 101, "train", how)
    got, expected = train(here), train(plain)
    assert got.clients.tolist() == expected.clients.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    np.testing.assert_allclose(rewards_of(got), gaussian_rewards(expected.losses.numpy()), atol=1e-6)


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
    assert rewards_of(updates).isnan().tolist() == [True] * 6 + [False] * 6
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
    assert rewards_of(updates).isnan().tolist() == [False] * 8 + [True] * 4
    assert readings_of(updates).isnan().all()


def test_rewards_that_are_none_are_invalid_and_struck(
    blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    here = world(blob_job(steps=2), private_losses=True)
    for value in (1.5, -0.1, float("nan")):

        def change(reply: Any, value: float = value) -> Any:
            reply.content["rewards"]["client-5"] = value
            return reply

        here.grid.spoil[101] = on(REWARD, change)
        assert rewards_of(train(here)).isnan().nonzero().flatten().tolist() == [5]
    assert "excluded client 5 after 3 invalid replies in a row" in caplog.text


def test_sums_of_the_wrong_shape_are_invalid(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=2), private_losses=True)

    def cut(reply: Message) -> Message:
        del reply.content["sums"]
        return reply

    here.grid.spoil[101] = on(SUM, cut)
    assert rewards_of(train(here)).isnan().all()
    assert here.roster.invalid == {4: 1, 5: 1, 6: 1, 7: 1}
    assert here.roster.strikes == {4: 1, 5: 1, 6: 1, 7: 1}  # a good training does not make up for it


def test_a_spoiled_sum_gives_no_rewards(blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture) -> None:
    here = world(blob_job(steps=2), private_losses=True)

    def noise(reply: Any) -> Any:
        words = np.random.default_rng(0).integers(0, 2**64, (2, 2, 2), np.uint64)
        reply.content["sums"]["model-0"] = Array(words)
        return reply

    here.grid.spoil[101] = on(SUM, noise)
    assert rewards_of(train(here)).isnan().all()
    assert "somebody spoiled the sum" in caplog.text


def test_without_every_sum_of_means_there_are_rewards_and_no_readings(
    blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A node of an older version sends none; one that spoils it is noticed; one that sends something else is struck."""
    here = world(blob_job(steps=2), private_losses=True)

    def sent(value: Array | None) -> Spoil:
        def change(reply: Any) -> Any:
            reply.content["means"] = ArrayRecord({} if value is None else {"model-0": value})
            return reply

        return on(REWARD, change)

    for value, why in ((None, "2 of 3 nodes sent their sum of means"), (Array(np.ones(2, np.uint64)), "somebody spoiled")):
        here.grid.spoil[101] = sent(value)
        updates = train(here)
        assert rewards_of(updates).isfinite().all()
        assert readings_of(updates).isnan().all()
        assert why in caplog.text
        assert not here.roster.invalid
    here.grid.spoil[101] = sent(Array(np.ones(3, np.uint64)))
    assert rewards_of(train(here)).isnan().nonzero().flatten().tolist() == [4, 5, 6, 7]
    assert set(here.roster.invalid) == {4, 5, 6, 7}


@pytest.mark.parametrize("key", [bytes(32), b"short", "text", None])
def test_a_key_that_is_none_is_an_invalid_reply(key: bytes | str | None, blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=1), private_losses=True)

    def change(reply: Message) -> Message:
        reply.content["party"] = ConfigRecord({} if key is None else {"key": key})
        return reply

    here.grid.spoil[101] = on("train", change)
    updates = train(here)
    assert updates.clients.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert rewards_of(updates).isfinite().all()
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
        assert seen is not None
        assert np.isfinite(seen[:2]).all()
        assert np.isnan(seen[2]).all()


@pytest.mark.parametrize("raw", [b"", b"three", b"\xff"])
def test_a_note_that_cannot_be_read_is_named(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "summed").write_bytes(raw)
    private = private_losses_for(ALGORITHMS["auto"], tmp_path / "summed")
    assert private is not None
    with pytest.raises(InputError, match=r"summed should hold the number of the last round .* write the last"):
        private.rewards_and_readings([], lambda *_: [], 4, 1e-7)
    (tmp_path / "summed").write_text("3\n")
    private.rewards_and_readings([], lambda *_: [], 4, 1e-7)
    assert (tmp_path / "summed").read_text() == "4"
