"""Runs followed in TensorBoard."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedgwc.cli.run import run_command
from fedgwc.core.errors import InputError
from fedgwc.runs.progress import Silent, Watcher
from fedgwc.runs.tensorboard import TensorBoard, check_tracker, image, tree_text

SETS = [
    "rounds=12",
    "data.train_size=6",
    "algorithm.rate=0.5",
    "algorithm.name=fedgwc",
    "algorithm.eps=0.5",
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


class Writer:
    """What was written where, without TensorBoard."""

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.written = folder, list[tuple[str, int]]()

    def add_scalar(self, name: str, value: float, step: int) -> None: ...
    def add_text(self, name: str, text: str, step: int) -> None:
        self.written.append((name, step))

    def add_image(self, name: str, image: np.ndarray, step: int, dataformats: str) -> None:
        self.written.append((name, step))

    def close(self) -> None: ...


def writer_of(tracker: TensorBoard) -> Writer:
    writer: Any = tracker.writer
    assert isinstance(writer, Writer)
    return writer


@pytest.fixture
def without_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    monkeypatch.setattr("fedgwc.cli.run.check_tracker", lambda name: None)


def test_a_tracked_run_ends_with_its_tree_in_a_folder_of_its_own(
    without_tensorboard: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trackers: list[TensorBoard] = []

    def tracker(other: Watcher) -> TensorBoard:
        trackers.append(TensorBoard(other))
        return trackers[0]

    monkeypatch.setattr("fedgwc.cli.run.TensorBoard", tracker)
    run_command("digits", ["rounds=2", *SETS[1:]], None, False, track="tensorboard")
    writer = writer_of(trackers[0])
    assert Path(writer.folder) == Path("runs/digits-fedgwc-1/tensorboard")
    assert writer.written[0] == ("clusters/tree", 2)
    assert {name for name, _ in writer.written[1:]} == {"P/cluster 0 at the end", "W/cluster 0 at the end"}


def test_the_earlier_end_of_a_run_that_is_made_longer_is_not_its_end(
    without_tensorboard: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TensorBoard, "_affinity", lambda self, P, distances: P)
    splits = tmp_path / "splits"
    splits.mkdir()

    def end(at: int) -> None:
        (splits / "tree.json").write_text("[]")
        np.savez(splits / "end-0.npz", P=np.eye(2))
        for path in splits.iterdir():
            os.utime(path, (at, at))

    def watched(number: int, ends: bool) -> list[tuple[str, int]]:
        tracker = TensorBoard(Silent())
        tracker.start("a run", 4, number - 1, tmp_path)
        tracker.round(number, 0.5, 1)
        tracker.evaluated({"round": number})
        if ends:
            end(number)
        tracker.stop()
        return writer_of(tracker).written

    end(2)
    assert watched(3, ends=False) == []
    assert watched(4, ends=True) == [("clusters/tree", 4), ("P/cluster 0 at the end", 4), ("W/cluster 0 at the end", 4)]


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(InputError, match="unknown tracker 'paper'; choose from tensorboard"):
        check_tracker("paper")


def test_a_failed_run_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
