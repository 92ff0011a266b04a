"""What a node with private losses checks for itself, whatever the server asks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedgwc.core.errors import InputError
from fedgwc.flower import Options, client
from fedgwc.flower.masking import public_key
from fedgwc.flower.private_client import masked_sums, own_rewards

from .spoiling import SUM, train
from .worlds import BlobJob, MakeWorld


@pytest.fixture
def asked(blob_job: BlobJob, world: MakeWorld) -> tuple[RecordDict, Any]:
    """Return the state of a node with clients 4 to 7 after a training, and the question for sums that it got."""
    here = world(blob_job(steps=2), private_losses=True)
    _, context = here.grid.nodes[101]
    states, questions = [], []

    def remember(question: Message, reply: Message) -> Message | None:
        if question.metadata.message_type == SUM:
            questions.append(question.content)
            return None
        if question.metadata.message_type == "train":
            states.append(RecordDict(dict(context.state)))
        return reply

    here.grid.spoil[101] = remember
    train(here)
    return states[0], questions[0]


def test_losses_are_summed_once_and_rewarded_once(asked: tuple[RecordDict, Any]) -> None:
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
def test_a_sum_in_bad_company_is_refused(change: Any, match: str, asked: tuple[RecordDict, Any]) -> None:
    state, question = asked
    before = dict(state)
    record = ConfigRecord({**question["model-0"], **change})
    with pytest.raises(InputError, match=match), np.errstate(over="ignore"):
        masked_sums(state, RecordDict({"model-0": record}))
    assert dict(state) == before  # nothing was revealed, so nothing is spent


def test_alone_a_node_gives_the_sum_of_three_and_not_of_two(asked: tuple[RecordDict, Any]) -> None:
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


def _is_mine(state: Any, key: bytes) -> bool:
    return public_key(state["fedgwc-secret"]["secret"]) == key


@pytest.mark.parametrize("told", [{"mean": [1.0], "variance": [1.0, 1.0]}, {"mean": [1.0], "variance": [-1.0]}])
def test_statistics_that_are_none_are_refused(told: Any, asked: tuple[RecordDict, Any]) -> None:
    state, question = asked
    masked_sums(state, question)
    with pytest.raises(InputError, match="mean and variance"):
        own_rewards(state, RecordDict({"model-0": ConfigRecord(told)}))


@pytest.mark.parametrize("private", [False, True])
def test_a_client_with_an_absurd_loss_leaves_itself_out(
    private: bool, blob_job: BlobJob, world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = client.train_one

    def absurd(engine: Any, place: int, number: int, *more: Any) -> Any:
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
