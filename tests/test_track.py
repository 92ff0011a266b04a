"""Runs followed in TensorBoard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedgwc.commands.run import run_command
from fedgwc.errors import InputError
from fedgwc.track import check_tracker, image, tree_text

SETS = [
    "rounds=12",
    "data.train_size=6",
    "algorithm.rate=0.5",
    "algorithm.when=visits",
    "algorithm.visits=2",
    "local.steps=2",
    "evaluate.every=4",
]


def test_scalars_tree_and_matrices_are_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra `track` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_command("digits", SETS, tmp_path / "r", False, track="tensorboard")
    seen = EventAccumulator(str(tmp_path / "r" / "tensorboard"))
    seen.Reload()
    assert [e.step for e in seen.Scalars("test/balanced_accuracy")] == [4, 8, 12]
    assert len(seen.Scalars("train/loss")) == 12
    tree = seen.Tensors("clusters/tree/text_summary")[0].tensor_proto.string_val[0].decode()
    assert tree.startswith("* cluster 0: 100 clients from round 0")
    images = seen.Tags()["images"]
    assert any(tag.startswith("P/") for tag in images)
    assert {tag[2:] for tag in images if tag[0] == "P"} == {tag[2:] for tag in images if tag[0] == "W"}


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(InputError, match="unknown tracker 'paper'; choose from tensorboard"):
        check_tracker("paper")


def test_a_failed_run_leaves_no_folder(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("tensorboard", reason="the extra `track` is not installed")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        run_command("digits", ["data.train_size=100000"], None, False, track="tensorboard")
    assert list(tmp_path.glob("runs/*")) == []


def test_the_tree_is_an_indented_list() -> None:
    nodes = [
        {"id": 0, "parent": None, "born": 0, "ended": 7, "members": [0, 1, 2]},
        {"id": 1, "parent": 0, "born": 7, "ended": None, "members": [0, 2]},
    ]
    assert tree_text(nodes) == ("* cluster 0: 3 clients from round 0, split at round 7\n    * cluster 1: 2 clients from round 7")


def test_images_use_all_shades() -> None:
    shades = image(np.array([[0.2, 0.4], [0.6, 0.6]]))
    assert shades.shape == (320, 320)
    assert (shades[0, 0], shades[0, -1], shades[-1, -1]) == (0, 128, 255)
    assert not image(np.ones((3, 3))).any()
