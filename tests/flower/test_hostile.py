"""No single message ends the server app, costs an honest node its reply, or goes unnoticed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from google.protobuf.message import DecodeError

from fedgwc.core.errors import InputError
from fedgwc.core.work import LocalTraining
from fedgwc.flower.checks import Invalid
from fedgwc.flower.client import parse_clients
from fedgwc.flower.identity import DataDescription, read_identity
from fedgwc.flower.mailbox import Mailbox, error_reason
from fedgwc.flower.masking import new_secret, public_key
from fedgwc.flower.node_tracker import NodeTracker
from fedgwc.flower.options import Options
from fedgwc.flower.roster import Roster
from fedgwc.flower.server import serve
from fedgwc.flower.state_dicts import StateDictWire
from fedgwc.flower.wire import RecipeWire, Task
from tests.conftest import Small

from .grids import LocalGrid, Spoil
from .spoiling import train
from .worlds import QUICK, BlobJob, MakeWorld, nodes_for


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedgwc")


def poison(grid: LocalGrid, node: int, error: Exception, kind: str) -> None:
    """That node's replies cannot be unpacked; as Flower does, the pull that fails has delivered all that it asked for."""
    pull = grid.pull_messages

    def pull_messages(ids: Iterable[str]) -> list[Message]:
        replies = pull(ids)
        for m in grid.seen:
            about = m.metadata
            if (
                about.dst_node_id == node
                and about.message_type == kind
                and about.message_id in {r.metadata.reply_to_message_id for r in replies}
            ):
                raise error
        return replies

    grid.pull_messages = pull_messages  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("error", [DecodeError("Error parsing message"), ValueError("no children"), IndexError()], ids=repr)
def test_a_reply_that_cannot_be_unpacked_is_a_strike_and_hurts_nobody_else(
    error: Exception, blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    here = world(blob_job(steps=1), deadline=30.0)  # nobody waits for what has been delivered
    poison(here.grid, 101, error, "train")
    assert train(here).clients.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert here.roster.invalid == dict.fromkeys([4, 5, 6, 7], 1)
    assert "dropped the reply of client 5 (1 in a row): it cannot be unpacked" in caplog.text


def test_an_introduction_that_cannot_be_unpacked_is_refused(blob_job: BlobJob, caplog: pytest.LogCaptureFixture) -> None:
    grid = LocalGrid()
    nodes_for(grid, blob_job(steps=1))
    poison(grid, 101, DecodeError("Error parsing message"), "query")
    tracker = NodeTracker(Mailbox(grid, 0.005), Roster(), read_identity)
    tracker.gather(Options(min_clients=8, **QUICK))
    assert tracker.sorted_newcomers() == [str(k) for k in (0, 1, 2, 3, 8, 9, 10, 11)]
    assert "node 101 is refused: it cannot be unpacked" in caplog.text


@pytest.mark.parametrize("reason", ["", " ", "\n \n"], ids=repr)
def test_an_error_with_a_blank_reason_is_told_by_its_code(
    reason: str, blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    here = world(blob_job(steps=1))
    here.grid.spoil[101] = lambda question, _: Message(Error(2, reason), reply_to=question)
    assert len(train(here)) == 8
    assert "the app on node 101 failed: 'code 2'" in caplog.text
    here.tracker.update()  # a node whose app failed is asked again whom it serves
    assert "node 101 failed to introduce itself: code 2" in caplog.text


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("<class 'RuntimeError'>:<'CUDA out of memory.\nboom'>", "<class 'RuntimeError'>:<'CUDA out of memory. boom'>"),
        ("Traceback (most recent call last):\n  File x\n    do()\nOSError: no disk\nat all", "OSError: no disk at all"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_a_reason_is_told_in_a_line(reason: str, told: Any) -> None:
    assert error_reason(Error(2, reason)) == told


def test_names_that_look_like_numbers_are_none() -> None:
    tracker = NodeTracker(Mailbox(LocalGrid(), 0.005), Roster(), read_identity)
    tracker.newcomers = dict.fromkeys(["a", "²", "10", "٣", "9"], 100)
    assert tracker.sorted_newcomers() == ["9", "10", "a", "²", "٣"]
    for text in ("²", "0-²", "٣"):
        with pytest.raises(InputError, match="must say which of the 12 clients it serves"):
            parse_clients(text, 12)


BAD_IDENTITIES: dict[str, dict[str, Any]] = {
    "an empty sample": {"shape": [0]},
    "no dimension": {"shape": []},
    "a sample that fills the memory": {"shape": [10**8]},
    "six dimensions": {"shape": [1, 2, 1, 2, 1, 2]},
    "200,000 dimensions": {"shape": [1] * 200_000},
    "one class": {"n-classes": 1},
    "half a class": {"n-classes": 2.5},
    "too many means": {"mean": [0.5] * 10**5, "std": [1.0] * 10**5},
    "means without deviations": {"mean": [0.5]},
    "no deviation": {"mean": [0.5], "std": [0.0]},
    "nan mean": {"mean": [float("nan")], "std": [1.0]},
    "infinite mean": {"mean": [1e39], "std": [1.0]},
}


@pytest.mark.parametrize("what", BAD_IDENTITIES)
def test_a_node_is_not_believed_what_cannot_be(what: str, blob_job: BlobJob, caplog: pytest.LogCaptureFixture) -> None:
    """What nodes say of their data the model is built for; what most of them say is in test_identity.py."""
    grid = LocalGrid()
    nodes_for(grid, blob_job(steps=1))

    def lie(_: Message, reply: Message) -> Message:
        reply.content.config_records["identity"].update(BAD_IDENTITIES[what])
        return reply

    grid.spoil[100] = lie
    tracker = NodeTracker(Mailbox(grid, 0.005), Roster(), read_identity)
    tracker.gather(Options(min_clients=8, **QUICK))
    assert "node 100 is refused" in caplog.text
    assert tracker.data == DataDescription((8,), 4)
    assert tracker.sorted_newcomers() == [str(k) for k in range(4, 12)]


def named(names: list[str]) -> Spoil:
    def spoil(_: Message, reply: Message) -> Message:
        reply.content.config_records["identity"]["names"] = names
        return reply

    return spoil


def test_a_recipe_that_deals_out_its_data_has_no_other_clients(
    small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job, grid = small("fedavg", rounds=1), LocalGrid()
    nodes_for(grid, job)
    for node, names in ((104, ["16", "20"]), (103, ["12", "\u00b2"])):
        grid.spoil[node] = named(names)
    serve(job, grid, tmp_path / "r", Options(min_clients=12, **QUICK))
    assert "node 104 is refused: it serves '20', and the recipe's clients are 0 to 19" in caplog.text
    assert "node 103 is refused: it serves '\u00b2'" in caplog.text


def test_names_that_a_node_makes_up_are_bounded(blob_job: BlobJob, caplog: pytest.LogCaptureFixture) -> None:
    """Whose data nodes bring may be called anything; who is in stays in."""
    job, grid = blob_job(steps=1), LocalGrid()
    nodes_for(grid, job)
    tracker = NodeTracker(Mailbox(grid, 0.005), Roster(), read_identity, DataDescription((8,), 4), max_clients=14)
    tracker.update()
    tracker.roster.add(tracker.sorted_newcomers())
    tracker.newcomers.clear()
    grid.add(900, grid.nodes[100][0], clients="0")
    grid.spoil[900] = named([f"x{i}" for i in range(20_000)])
    tracker.update()
    assert tracker.sorted_newcomers() == ["x0", "x1"]
    assert len(tracker.roster.node) == 14
    assert "max-clients = 14: 19998 clients of node 900 are left out" in caplog.text
    with pytest.raises(InputError, match="more than max_clients = 5"):
        Options(min_clients=6, max_clients=5)


def test_a_client_tells_of_no_more_steps_than_its_samples_make(blob_job: BlobJob) -> None:
    job = blob_job()
    model = job.simulator(job.federation()).model
    for local, size, most in (
        (LocalTraining(steps=20_000), 5, 20_000),  # the operator asked for them
        (LocalTraining(epochs=2, batch=10), 35, 6),
        (LocalTraining(epochs=2, batch=10), 7, 2),
        (LocalTraining(epochs=2, batch=10), 10**9, 100),  # a size is somebody else's word too
    ):
        assert RecipeWire.of(model, 4, local=local, max_steps=100)._most_steps(size) == most


def test_private_steps_are_bounded_by_the_recipe(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=2), private_losses=True)

    def boast(question: Message, reply: Message) -> Message:
        if question.metadata.message_type == "train":
            reply.content.metric_records["client-5"]["steps"] = 3
        return reply

    here.grid.spoil[101] = boast
    assert 5 not in train(here).clients
    assert here.roster.invalid == {5: 1}


@pytest.mark.parametrize("private", [False, True])
def test_an_app_of_ones_own_tells_of_no_more_steps_than_the_operator_allows(private: bool) -> None:
    wire = StateDictWire.of(ArrayRecord({"w": Array(np.zeros(2))}), {}, private, max_steps=3)
    task, party = Task(0, "a", 0), ConfigRecord({"key": public_key(new_secret())})

    def reply(n: int) -> RecordDict:
        told = {"steps": n} if private else {"losses": [1.0] * n}
        metrics = MetricRecord({"num-examples": 1, **told})
        return RecordDict({"arrays": ArrayRecord({"w": Array(np.zeros(2))}), "metrics": metrics, "party": party})

    assert task in wire.trained(reply(3), [task])
    for read in (wire.trained, wire.scored):
        with pytest.raises(Invalid, match=r"more than 3 steps|at most 3|losses must be"):
            read(reply(4), [task])
