"""Folders that are damaged are named, and whatever else they may hold is read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgwc.core.errors import InputError
from fedgwc.report import build
from fedgwc.report.figures.tree import bands
from fedgwc.report.load import load
from tests.report.conftest import Finished

HUGE_NUMBER = json.dumps(
    [{"id": 2**63, "parent": None, "born": 0, "ended": None, "members": list(range(20)), "scores": {}}]  # no int64 holds it
)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("labels.csv", None, "not finished; finish it with: fedgwc run --resume"),
        ("metrics.jsonl", "", "not finished"),
        ("metrics.jsonl", "[1, 2]\n", "metrics.jsonl cannot be read"),
        ("config.json", None, "holds no run"),
        ("config.json", "[]", "not the configuration of a run"),
        ("clients.npz", "no zip", "clients.npz cannot be read"),
        ("clients.npz", None, "clients.npz cannot be read"),
        ("labels.csv", "client,cluster\n0,0\n", "labels.csv cannot be read"),
        ("labels.csv", "a,b\n0,0\n", "labels.csv cannot be read"),
        ("labels.csv", "client,cluster\n" + "0,0\n" * 20, "each of the 20 clients needs one line"),
        ("labels.csv", "client,cluster\n" + "".join(f"{k},0\n" for k in range(20)), "its clusters are not those of splits/tree"),
        ("metrics.jsonl", f'{{"round": 1{"0" * 30}}}\n', "metrics.jsonl cannot be read, line 1"),
        ("splits/tree.json", "{", "tree.json cannot be read"),
        ("splits/tree.json", '[{"id": 0}]', "tree.json cannot be read"),
        ("splits/tree.json", "[]", "tree.json cannot be read"),
        ("splits/tree.json", HUGE_NUMBER, "tree.json cannot be read"),
        ("trace/00000001-00000010.npz", "PK", "trace cannot be read"),
        ("splits/end-99.npz", "PK", "end-99.npz cannot be read"),
        ("per_client.npz", "PK", "per_client.npz cannot be read"),
    ],
)
def test_a_damaged_folder_is_named(file: str, content: str | None, message: str, finished: Finished, tmp_path: Path) -> None:
    run = shutil.copytree(finished("fedgwc"), tmp_path / "r")
    (run / file).unlink(missing_ok=True)
    if content is not None:
        (run / file).write_text(content)
    with pytest.raises(InputError, match=message):
        build([run])


def test_clients_have_their_clusters_in_whatever_order_they_stand(finished: Finished, tmp_path: Path) -> None:
    run = shutil.copytree(finished("fedgwc"), tmp_path / "r")
    head, *rows = (run / "labels.csv").read_text().splitlines()
    (run / "labels.csv").write_text("\n".join([head, *reversed(rows), ""]))
    np.testing.assert_array_equal(load(run).clusters, load(finished("fedgwc")).clusters)


def test_clusters_may_be_nested_deeply(finished: Finished, tmp_path: Path) -> None:
    """By a tree that is no chain of divisions of 20 clients, but a sound one to read."""
    run = shutil.copytree(finished("fedavg"), tmp_path / "r")
    members, deep = list(range(20)), 3000
    nodes: list[dict[str, Any]] = [
        {"id": i, "parent": i - 1 if i else None, "born": 0, "ended": 1, "members": members, "scores": {}} for i in range(deep)
    ]
    (run / "splits" / "tree.json").write_text(json.dumps([*nodes[:-1], nodes[-1] | {"ended": None}]))
    (run / "labels.csv").write_text("client,cluster\n" + "".join(f"{k},{deep - 1}\n" for k in members))
    assert set(bands(load(run)).values()) == {0.0}


def test_distances_that_are_no_numbers_are_named(finished: Finished, tmp_path: Path) -> None:
    run = shutil.copytree(finished("fedgwc"), tmp_path / "r")
    path = next((run / "splits").glob("end-*.npz"))
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays | {"distances": np.full(arrays["P"].shape, np.nan)})
    with pytest.raises(InputError, match=f"{path.name} cannot be read"):
        build([run])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accuracy": np.zeros(3)}, "one number per client"),
        ({"hits_offsets": np.arange(3)}, "where each client's test samples begin"),
        ({"hits_offsets": np.arange(19)[::-1]}, "where each client's test samples begin"),
        ({"hits": np.full(90, 2, np.uint8)}, "hits must be 0 or 1"),
        ({"hits": np.zeros(7, np.uint8)}, "hits must be 0 or 1"),
        ({"newcomers_accuracy": np.zeros(5)}, "one number per client"),
    ],
)
def test_outcomes_of_test_samples_are_checked(changes: dict[str, Any], message: str, finished: Finished, tmp_path: Path) -> None:
    run = shutil.copytree(finished("fedavg", data={"newcomers": 0.1}), tmp_path / "r")
    with np.load(run / "per_client.npz") as arrays:
        assert arrays["hits"].shape == (90,)  # 18 clients with five each
        np.savez(run / "per_client.npz", **{**arrays, **changes})
    with pytest.raises(InputError, match=message):
        load(run)
