"""Replies that are nonsense: dropped, counted, named in the log, never averaged; who keeps sending them is excluded."""

from __future__ import annotations

import io
import logging
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedgwc.flower.wire import RecipeWire

from .grids import Spoil
from .spoiling import on_training, train, vector
from .worlds import BlobJob, MakeWorld


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedgwc")


def array_of(values: Any, data: bytes | None = None) -> Array:
    made = Array(np.asarray(values))
    return made if data is None else Array(made.dtype, tuple(made.shape), made.stype, data)


def object_array() -> Array:
    """What numpy would have to unpickle."""
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}] * 300, object), allow_pickle=True)
    return Array("object", (300,), "numpy.ndarray", buffer.getvalue())


def huge_header(size: int) -> Array:
    """A few bytes that claim to be a terabyte."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": (2**38,)})
    return Array("float32", (size,), "numpy.ndarray", buffer.getvalue() + bytes(4 * size))


def headed(text: str) -> Array:
    """Weights under a header of one's own."""
    return array_of(GOOD, b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + GOOD.tobytes())


SIZE = 8 * 16 + 16 + 16 * 4 + 4  # of the blobs' network
GOOD = np.zeros(SIZE, np.float32)
BAD_MODELS = {
    "wrong shape": array_of(np.zeros(SIZE - 1, np.float32)),
    "a matrix": array_of(GOOD[None]),
    "float64": array_of(GOOD.astype(np.float64)),
    "nan": array_of(np.where(np.arange(SIZE) == 3, np.nan, GOOD).astype(np.float32)),
    "infinite": array_of(np.where(np.arange(SIZE) == 3, np.inf, GOOD).astype(np.float32)),
    "integers": array_of(GOOD.astype(np.int32)),
    "garbage": array_of(GOOD, b"x" * (4 * SIZE + 80)),
    "cut off": array_of(GOOD, array_of(GOOD).data[:-1] + b""),
    "objects": object_array(),
    "a terabyte": huge_header(SIZE),
    "an open bracket": headed("{'descr': ('<f4', 'shape': (3,\n"),
    "an empty type": headed("{'descr': (), 'fortran_order': False, 'shape': (3,)}\n"),
    "too much": array_of(np.zeros(10**6, np.float32)),
}
BAD_METRICS: dict[str, dict[str, Any]] = {
    "no count": {"num-examples": None},
    "negative count": {"num-examples": -5},
    "zero count": {"num-examples": 0},
    "absurd count": {"num-examples": 10**12},
    "fractional count": {"num-examples": 2.5},
    "no losses": {"losses": None},
    "empty losses": {"losses": []},
    "nan loss": {"losses": [1.0, float("nan")]},
    "infinite loss": {"losses": [float("inf")]},
    "loss that is infinite to a model": {"losses": [1e39]},
    "loss beyond all that losses are": {"losses": [1.1e6]},
    "more losses than steps": {"losses": [1.0, 1.0]},
    "scalar losses": {"losses": 1.0},
    "more right than asked": {"test-correct": 9, "test-total": 3},
    "negative test": {"test-correct": -1},
    "nan test": {"test-loss": float("nan")},
    "test that no mean survives": {"test-loss": 1e308},
    "class counts too short": {"class-counts": [1, 2]},
    "class counts that do not add up": {"class-counts": [1, 1, 1, 1]},
    "negative class counts": {"class-counts": [-12, 24, 12, 12]},
}


def spoiled(client: int, model: Array | None = None, **metrics: object) -> Spoil:
    def change(reply: Any) -> Any:
        if model is not None and str(client) in reply.content.array_records["models"]:
            reply.content.array_records["models"][str(client)] = model
        record = reply.content.metric_records.get(f"client-{client}")
        for key, value in metrics.items() if record is not None else ():
            if value is None:
                del record[key]
            else:
                record[key] = value
        return reply

    return on_training(change)


def test_an_invalid_reply_is_dropped_counted_and_named(
    blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    here = world(blob_job(steps=1), strikes=1000)
    clean = train(here)
    others = clean.rows(np.flatnonzero(clean.clients != 5))
    for i, what in enumerate([*BAD_MODELS, *BAD_METRICS], 1):
        caplog.clear()
        here.grid.spoil[101] = spoiled(5, BAD_MODELS.get(what), **BAD_METRICS.get(what, {}))
        updates = train(here)
        assert updates.clients.tolist() == others.clients.tolist(), what
        assert torch.equal(updates.models, others.models), what  # nobody else is touched
        assert here.roster.invalid == {5: i}, what
        assert "dropped the reply of client 5" in caplog.text, what


def test_another_model_is_dropped_whatever_its_size(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=1))

    def change(reply: Message) -> Message:
        reply.content.config_records["about"]["model"] = "other"
        return reply

    here.grid.spoil[101] = on_training(change)
    assert not set(train(here).clients) & {4, 5, 6, 7}
    assert set(here.roster.invalid) == {4, 5, 6, 7}


def test_who_keeps_sending_nonsense_is_excluded_and_reported(
    blob_job: BlobJob, world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    here = world(blob_job(steps=1), strikes=3)
    here.grid.spoil[101] = spoiled(5, BAD_MODELS["nan"])
    for _ in range(2):
        train(here)
    del here.grid.spoil[101]
    train(here)  # one good reply, and the count of replies in a row starts again
    assert here.roster.strikes == {}
    here.grid.spoil[101] = spoiled(5, BAD_MODELS["nan"])
    for _ in range(3):
        train(here)
    assert "excluded client 5 after 3 invalid replies in a row" in caplog.text
    before = len(here.grid.seen)
    assert 5 not in train(here).clients
    assert all(
        5 not in cast(list[int], m.content.config_records["config"]["numbers"]) for m in here.grid.seen[before:]
    )  # not even asked
    assert here.roster.invalid[5] == 5


def test_a_score_is_judged_client_by_client(blob_job: BlobJob, world: MakeWorld) -> None:
    """Of node 101's four, client 4 has no test data and client 5 lies."""
    here = world(blob_job(steps=1))

    def change(question: Message, reply: Message) -> Message:
        if question.metadata.message_type == "evaluate":
            scores = reply.content.metric_records["scores"]
            scores["correct"], scores["total"] = [0, 13, 1, 1], [0, 12, 12, 12]
        return reply

    here.grid.spoil[101] = change
    scores = here.engine.evaluate(np.arange(12), vector(here.job)[None], np.zeros(12, np.int64))
    assert scores.clients.tolist() == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]
    assert here.roster.invalid == {5: 1}


def test_nothing_is_shared_between_messages(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=1))
    before = len(here.grid.seen)
    train(here)
    configs = [m.content.config_records["config"] for m in here.grid.seen[before:]]
    assert len({id(c) for c in configs}) == len(configs) == 3


def test_records_of_the_wrong_kind_are_no_crash(blob_job: BlobJob, world: MakeWorld) -> None:
    here = world(blob_job(steps=1))
    wire = cast(RecipeWire, here.engine.wire)
    for content in (
        RecordDict(),
        RecordDict({"models": ConfigRecord(), "about": MetricRecord()}),
        RecordDict({"about": ConfigRecord({"model": wire.model}), "client-5": MetricRecord(), "models": ArrayRecord()}),
    ):
        here.grid.spoil[101] = on_training(partial(_with, content=content))
        assert 5 not in train(here).clients


def _with(reply: Message, content: RecordDict) -> Message:
    reply.content = content
    return reply
