"""Nodes that are silent, late or gone: missing rows, until they answer again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Error, Message
from torch import nn

from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.core.layout import Layout
from fedgwc.core.work import LocalTraining
from fedgwc.data import Federation, Rows
from fedgwc.engines.simulator import Simulator
from fedgwc.flower import Options
from fedgwc.flower.client import served_clients, train_clients
from fedgwc.flower.server import serve
from fedgwc.flower.wire import RecipeWire, Task
from fedgwc.runs.folder import RunFolder

from . import blobs
from .grids import LocalGrid
from .spoiling import on_training, train, vector
from .worlds import QUICK, BlobJob, MakeWorld, driver, nodes_for


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedgwc")


@pytest.mark.parametrize("reply", [None, Error(5, "node away"), Error(3, "expired")], ids=["silence", "away", "expired"])
def test_a_silent_node_is_missing_rows_and_comes_back(
    reply: Any, blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    here = world(blob_job(steps=1))

    def silent(question: Message, _: Message) -> Message | None:
        return None if reply is None else Message(reply, reply_to=question)

    here.grid.spoil[101] = silent
    assert train(here).clients.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert "node 101 does not answer" in caplog.text
    assert not here.roster.invalid  # silence is no offence
    here.tracker.update()  # asked whether it is back; it is not
    assert train(here).clients.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    del here.grid.spoil[101]
    here.tracker._queries.clear()  # the question that was lost in the process' mailbox has expired
    here.tracker.update()
    assert len(train(here)) == 12


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What does not happen before the test ends; then threads that wait for it may go."""
    event = threading.Event()
    yield event
    event.set()


def stalling(grid: LocalGrid, node: int, until: threading.Event) -> None:
    """That node's trained models are announced and not uploaded; replies not fetched in time expire, as at a SuperLink."""
    pull = grid.pull_messages

    def pull_messages(ids: Iterable[str]) -> list[Message]:
        (i,) = ids
        about = grid.seen[int(i[1:]) - 1].metadata
        if about.dst_node_id == node and about.message_type == "train":
            until.wait()
        if time.time() > about.created_at + about.ttl:
            return [Message(Error(4, "expired"), reply_to=grid.seen[int(i[1:]) - 1])]
        return pull(ids)

    grid.pull_messages = pull_messages  # type: ignore[method-assign, assignment]


def test_an_upload_that_stalls_costs_nobody_else_a_reply(
    blob_job: BlobJob, world: MakeWorld, never: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """The first of three nodes, so that it is looked at before the others; its thread does not keep the server from ending."""
    here = world(blob_job(steps=1), deadline=2.5)
    stalling(here.grid, 100, never)
    began = time.monotonic()
    assert train(here).clients.tolist() == list(range(4, 12))
    assert time.monotonic() - began < 4
    assert here.roster.silent == {100}
    assert not here.roster.invalid
    assert all(t.daemon for t in threading.enumerate() if t.name.startswith("reply to"))
    here.tracker.update()  # it is there: an identity is small
    assert not here.roster.silent
    asked = len(here.grid.seen)
    assert train(here).clients.tolist() == list(range(4, 12))
    assert {m.metadata.dst_node_id for m in here.grid.seen[asked:]} == {101, 102}  # one upload of a node at a time
    never.set()
    here.engine.mailbox._late[100].result(10)
    here.roster.resting_until.clear()
    here.tracker.update()
    assert len(train(here)) == 12


def test_a_node_that_never_trains_costs_fewer_and_fewer_rounds(
    blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """It answers every introduction: asked in rounds 1, 2, 4, 7, 12, 21, with 0, 1, 2, 4, 8 rounds between."""
    job = blob_job(steps=1)
    here = world(job, deadline=0.1)
    asked: list[int] = []

    def stall(question: Message, reply: Message) -> Message | None:
        if question.metadata.message_type != "train":
            return reply
        asked.append(here.engine.number)
        return None

    here.grid.spoil[101] = stall
    rounds, state = driver(here, job.algorithm, 1), job.algorithm.init(vector(job), 12, Layout.unnamed(1))
    for number in range(1, 22):
        state = rounds.round(state, number)
    assert asked == [1, 2, 4, 7, 12, 21]
    assert caplog.text.count("node 101 came back and kept silent again") == 1
    assert caplog.text.count("node 101 does not answer") == 1
    here.roster.resting_until.clear()
    here.tracker.update()
    del here.grid.spoil[101]
    assert len(train(here)) == 12
    assert not here.roster.missed


def test_a_round_that_lacks_replies_asks_who_rests(blob_job: BlobJob, world: MakeWorld) -> None:
    job = blob_job(steps=1)
    here = world(job, min_replies=12)
    here.roster.resting_until[101] = 100
    rounds = driver(here, job.algorithm, 1)
    rounds.round(job.algorithm.init(vector(job), 12, Layout.unnamed(1)), 1)
    assert here.engine.n_answered == 12


def test_an_app_that_fails_is_missing_rows_and_no_offence(
    blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    here = world(blob_job(steps=1))
    here.grid.spoil[101] = lambda question, _: Message(Error(2, "Traceback\nValueError: no disk"), reply_to=question)
    assert len(train(here)) == 8
    assert "no disk" in caplog.text
    assert not here.roster.invalid
    assert not here.roster.silent


def test_a_node_that_serves_others_now_is_asked_again(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=1))
    here.grid.nodes[101][1].node_config["clients"] = "4-6"  # restarted with another configuration, before it was missed
    assert set(train(here).clients) == {0, 1, 2, 3, 8, 9, 10, 11}
    here.tracker.update()
    assert set(train(here).clients) == set(range(12)) - {7}


def test_a_client_whose_training_explodes_is_left_out_by_its_own_node(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=1))
    models = torch.stack([vector(here.job), torch.full_like(vector(here.job), 1e30)])
    updates = train(here, range(12), models, [0] * 11 + [1])
    assert 11 not in updates.clients
    assert not here.roster.invalid


def test_a_client_that_cannot_train_costs_its_neighbours_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """BatchNorm refuses a single sample, which is all that client 1 has."""
    torch.manual_seed(0)
    rows = Rows.of([np.arange(4), np.arange(4, 5), np.arange(5, 9)])
    federation = Federation(torch.randn(9, 3), torch.arange(9) % 2, rows, rows, 2)
    engine = Simulator(federation, nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)), LocalTraining(steps=2, batch=4))
    theta = engine.model.vector()[None]
    tasks = [Task(k, str(k), 0) for k in range(3)]
    (question,) = RecipeWire.of(engine.model, 2).train(tasks, theta, 5, 1)
    reply = train_clients(served_clients(engine, {"clients": "0-2"}), question.content)
    updates = engine.train(np.arange(3), theta, np.zeros(3, np.int64), 5)
    models = reply.array_records["models"]
    assert [int(name) for name in models] == updates.clients.tolist() == [0, 2]
    torch.testing.assert_close(torch.from_numpy(models["2"].numpy()), updates.models[1])
    assert "cannot train this model" in caplog.text


def test_nobody_trains_the_model_of_a_client_that_is_alone(blob_job: BlobJob, world: MakeWorld) -> None:
    """Client 5 is away, and its own model stands where that of label 1 would: client 1 is a stranger to it."""
    here = world(blob_job(steps=1), min_replies=1)
    here.roster.mark_absent(101)
    here.engine.begin_round(1, np.arange(12))
    assert train(here, [0, 5, 9], vector(here.job).repeat(3, 1), [0, 1, 2]).clients.tolist() == [0, 9]


def test_the_dead_are_not_waited_for_once_they_are_gone(
    blob_job: BlobJob, world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline is long, but the SuperLink has noticed that the node left."""
    monkeypatch.setattr("fedgwc.flower.mailbox.NODE_CHECK_SECONDS", 0.01)
    here = world(blob_job(steps=1), deadline=60.0)

    def dies(question: Message, _: Message) -> None:
        here.grid.nodes.pop(101, None)

    here.grid.spoil[101] = dies
    assert len(train(here)) == 8


def negative_count(reply: Message) -> Message:
    if "client-3" in reply.content.metric_records:
        reply.content.metric_records["client-3"]["num-examples"] = -1
    return reply


def test_a_run_survives_all_of_it_and_finds_the_clusters(
    blob_job: BlobJob, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One node silent from the third round on, one client always invalid."""
    job = blob_job(rounds=8)
    grid, asked = LocalGrid(), [0]
    nodes_for(grid, job)
    grid.spoil[100] = on_training(negative_count)

    def leaves(question: Message, reply: Message) -> Message | None:
        asked[0] += question.metadata.message_type == "train"
        return reply if asked[0] < 6 else None

    grid.spoil[102] = leaves
    found = serve(job, grid, tmp_path / "r", Options(min_clients=12, **QUICK))
    others = [k for k in range(12) if k != 3]
    np.testing.assert_array_equal(found.labels[others], blobs.TRUTH[others])
    rows = RunFolder(tmp_path / "r").metrics()
    assert [r["answered"] for r in rows] == [11, 11, 11, 11, 11, 7, 7, 7]
    assert rows[-1]["excluded"] == 1
    assert rows[-1]["invalid"] == 3
    assert "client 3 was excluded" in caplog.text


def test_two_nodes_cannot_serve_one_client_but_may_take_over(
    blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    here = world(blob_job(steps=1))
    app = here.grid.nodes[101][0]
    here.grid.add(201, app, clients="4-7")  # as a restarted node looks while the old one has not been missed
    here.tracker.update()
    assert "node 201 may not serve 4, 5, 6, 7 while another node does" in caplog.text
    assert here.roster.node["5"] == 101
    del here.grid.nodes[101]
    here.tracker.update()
    assert here.roster.node["5"] == 201
    assert len(train(here)) == 12


def test_a_node_that_serves_others_now_leaves_the_claimed_to_who_claims_them(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=1))
    here.grid.add(201, here.grid.nodes[101][0], clients="4-7")
    here.tracker.update()
    here.grid.nodes[101][1].node_config["clients"] = "4-5"  # restarted under its old id, with another configuration
    here.roster.ask_again.add(101)
    here.tracker.update()
    assert [here.roster.node[str(k)] for k in range(4, 8)] == [101, 101, 201, 201]
    assert set(here.tracker.contested) == {"4", "5"}
    assert len(train(here)) == 12


def test_who_no_longer_claims_a_client_does_not_get_it(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=1))
    here.grid.add(201, here.grid.nodes[101][0], clients="4-7")
    here.tracker.update()
    here.grid.nodes[201][1].node_config["clients"] = "7"
    here.roster.ask_again.add(201)
    here.tracker.update()
    del here.grid.nodes[101]
    here.tracker.update()
    assert here.roster.node["7"] == 201
    assert set(train(here).clients) == {0, 1, 2, 3, 7, 8, 9, 10, 11}


def test_a_newcomer_that_its_node_no_longer_serves_is_not_asked(blob_job: BlobJob, world: MakeWorld) -> None:
    job = blob_job(steps=1)
    here = world(job)
    here.tracker.newcomers["11"] = here.roster.node[here.roster.names.pop()]  # it has not got a number yet
    here.grid.nodes[102][1].node_config["clients"] = "8-10"
    here.roster.ask_again.add(102)
    algorithm = Auto()
    state = algorithm.init(vector(job), 11, Layout.unnamed(1))
    state = replace(state, clusters=(state.clusters[0],) * 2)  # a choice, so that newcomers are asked which serves them better
    here.tracker.update()
    assert driver(here, algorithm).site.enter(1, algorithm, state) is state
    assert len(here.roster) == 11
