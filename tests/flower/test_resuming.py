"""A run goes on with who is left: the excluded and those gone for good are not waited for."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from flwr.app import Message

from fedgwc.core.errors import InputError
from fedgwc.flower import Options
from fedgwc.flower.server import serve
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.folder import RunFolder

from .grids import LocalGrid
from .spoiling import on_training
from .worlds import QUICK, BlobJob, nodes_for

EVERYBODY = Options(min_clients=12, **QUICK)  # as `fedgwc deploy init` writes it


def negative_count(reply: Message) -> Message:
    if "client-5" in reply.content.metric_records:
        reply.content.metric_records["client-5"]["num-examples"] = -1
    return reply


def begin(job: Experiment, folder: Path, spoiled: bool = False) -> LocalGrid:
    grid = LocalGrid()
    nodes_for(grid, job)
    if spoiled:
        grid.spoil[101] = on_training(negative_count)
    serve(job, grid, folder, EVERYBODY)
    return grid


def test_who_was_excluded_is_not_waited_for(blob_job: BlobJob, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedgwc")
    grid = begin(blob_job(rounds=3, steps=1), tmp_path / "r", spoiled=True)
    serve(blob_job(rounds=4, steps=1), grid, tmp_path / "r", EVERYBODY)
    assert [row["answered"] for row in RunFolder(tmp_path / "r").metrics()] == [11] * 4
    assert "going on with" not in caplog.text  # at once: all who may come are there


def test_who_is_gone_for_good_is_waited_for_no_longer_than_a_round(
    blob_job: BlobJob, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = begin(blob_job(rounds=1, steps=1), tmp_path / "r")
    del grid.nodes[102]
    serve(blob_job(rounds=2, steps=1), grid, tmp_path / "r", EVERYBODY)
    assert [row["answered"] for row in RunFolder(tmp_path / "r").metrics()] == [12, 8]
    assert "going on with 8 clients; 12 were there before" in caplog.text
    grid.nodes.clear()
    with pytest.raises(InputError, match=r"0 clients came within 0\.5 s and 3 are needed.*min-replies"):
        serve(blob_job(rounds=3, steps=1), grid, tmp_path / "r", EVERYBODY)
