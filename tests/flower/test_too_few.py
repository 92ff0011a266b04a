"""Too few answers: stand-ins, clusters that stay as they are, rounds that change nothing and are tried again."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from flwr.app import Message

from fedgwc.core.errors import InputError
from fedgwc.core.layout import Layout
from fedgwc.core.types import Rng, TooFewReplies
from tests.conftest import Small

from .spoiling import no_answer, on_training, train, vector
from .worlds import BlobJob, MakeWorld, driver


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedgwc")


def test_stand_ins_come_from_the_same_cluster(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=1))
    here.roster.mark_absent(100)  # clients 0..3
    labels = np.array([0, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0, 0])
    here.engine.begin_round(1, labels)
    models = torch.stack([vector(here.job)] * 2)
    updates = train(here, [0, 4, 7, 2, 5, 6], models, [0, 0, 0, 1, 1, 1])
    assert set(updates.clients) >= {4, 5, 6, 7, 9}  # 9 is the only other one in cluster 1
    assert len(set(updates.clients) & {8, 10, 11}) == 1
    again = train(here, [0, 4, 7, 2, 5, 6], models, [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(updates.clients, again.clients)  # a round depends on (seed, round, state), stand-ins too


def test_a_cluster_with_too_few_answers_stays_as_it_is(
    blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    here = world(blob_job(steps=1))
    models = torch.stack([vector(here.job)] * 2)
    here.grid.spoil[100] = on_training(no_answer)  # 0..3
    updates = train(here, [0, 1, 4, 5, 8, 9, 10], models, [0, 0, 0, 0, 1, 1, 1])
    assert updates.clients.tolist() == [8, 9, 10]
    assert "model 0 got 2 of 3 answers and stays as it is" in caplog.text


def test_a_round_with_too_few_replies_changes_nothing_and_is_tried_again(
    blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    job = blob_job(steps=1)
    here = world(job, retries=3)
    rounds = driver(here, job.algorithm, job.seed)
    state = job.algorithm.init(vector(job), 12, Layout.unnamed(1))
    answers = [0]

    def recovers(reply: Message) -> Message | None:
        answers[0] += 1
        return None if answers[0] <= 3 else reply

    for node in here.grid.nodes:
        here.grid.spoil[node] = on_training(recovers)
    after = rounds.round(state, 1)
    assert "round 1, attempt 1 of 3: 0 valid answers" in caplog.text
    calm = world(job)
    calm.engine.begin_round(1, np.zeros(12, np.int64))
    undisturbed = job.algorithm.round(state, calm.engine, Rng(job.seed, 1))
    assert torch.equal(after.servers[0].theta, undisturbed.servers[0].theta)
    np.testing.assert_array_equal(after.groups.clusters[0].P, undisturbed.groups.clusters[0].P)


def test_a_federation_that_stands_still_stops_and_says_so(blob_job: BlobJob, world: MakeWorld) -> None:
    job = blob_job(steps=1)
    here = world(job, retries=2)
    for node in here.grid.nodes:
        here.grid.spoil[node] = on_training(no_answer)
    rounds = driver(here, job.algorithm, job.seed)
    with pytest.raises(InputError, match="round 1 got too few replies 2 times in a row; the run stands at round 0"):
        rounds.round(job.algorithm.init(vector(job), 12, Layout.unnamed(1)), 1)


def test_who_was_late_once_is_waited_for(blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture) -> None:
    """All nodes leave when they are to train and come back after a while: no attempt is spent on asking nobody."""
    job = blob_job(steps=1)
    here = world(job, retries=2, pause=0.0, wait=60.0)
    nodes, looks = dict(here.grid.nodes), [0]

    def leave(question: Message, reply: Message) -> Message | None:
        if question.metadata.message_type != "train" or looks[0]:
            return reply
        here.grid.nodes.pop(question.metadata.dst_node_id)
        return None

    def get_node_ids() -> list[int]:
        looks[0] += not here.grid.nodes
        if looks[0] > 5:
            here.grid.nodes.update(nodes)
        return list(here.grid.nodes)

    here.grid.spoil = dict.fromkeys(nodes, leave)
    here.grid.get_node_ids = get_node_ids  # type: ignore[method-assign]
    rounds = driver(here, job.algorithm, job.seed)
    rounds.round(job.algorithm.init(vector(job), 12, Layout.unnamed(1)), 1)
    assert here.engine.n_answered == 12
    assert caplog.text.count("round 1 waits: 0 clients are there, 3 are needed") == 1


def test_nobody_is_waited_for_without_end(blob_job: BlobJob, world: MakeWorld) -> None:
    job = blob_job(steps=1)
    here = world(job, wait=0.05)
    here.grid.nodes.clear()
    rounds = driver(here, job.algorithm, job.seed)
    with pytest.raises(InputError, match=r"round 4: 0 clients came back within 0\.05 s, 3 are needed; the run stands at round 3"):
        rounds.round(job.algorithm.init(vector(job), 12, Layout.unnamed(1)), 4)
    assert not here.grid.nodes


def test_p_changes_only_for_those_who_answered(blob_job: BlobJob, world: MakeWorld) -> None:
    job = blob_job(steps=1)
    here = world(job)
    here.grid.spoil[102] = on_training(no_answer)
    here.engine.begin_round(1, np.zeros(12, np.int64))
    after = job.algorithm.round(job.algorithm.init(vector(job), 12, Layout.unnamed(1)), here.engine, Rng(1, 1))
    (cluster,) = after.groups.clusters
    P, visits = cluster.P, cluster.visits
    assert (P[:8, :8] > 0).all()
    assert not P[8:].any()
    assert not P[:, 8:].any()
    assert visits[:8, :8].min() == visits.max() == 1
    assert after.groups.sampled.tolist() == [1] * 8 + [0] * 4


def test_ifca_asks_stand_ins_too_and_refuses_too_few(small: Small, world: MakeWorld) -> None:
    job = small("ifca")
    here = world(job)
    here.roster.mark_absent(100)
    here.engine.begin_round(1, np.zeros(20, np.int64))
    models = torch.stack([vector(job)] * 2)
    cohort = np.array([0, 1, 8, 9])
    scores = here.engine.evaluate(np.repeat(cohort, 2), models, np.tile([0, 1], 4), "train")
    assert len(np.unique(scores.clients)) == 4
    assert {8, 9} < set(scores.clients)
    assert not set(scores.clients) & {0, 1, 2, 3}
    for node in (101, 102, 103, 104):
        here.roster.mark_absent(node)
    with pytest.raises(TooFewReplies):
        here.engine.evaluate(np.repeat(cohort, 2), models, np.tile([0, 1], 4), "train")
