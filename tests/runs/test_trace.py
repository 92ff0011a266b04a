"""Traces: read from their pieces, which fit together or are no trace."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedgwc.core.errors import InputError
from fedgwc.engines.meter import Reported
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.replay import trace_of
from fedgwc.runs.trace import join_traces, trace_arrays


def test_pieces_of_a_trace_fit_whatever_was_known_when_they_were_written() -> None:
    """Open losses, private ones as an earlier version kept them, and as this one does, in cohorts of different sizes."""
    open_ = trace_arrays([(1, Reported(np.arange(3), np.zeros(3, int), np.ones((3, 2))))])
    private = Reported(np.arange(2), np.zeros(2, int), np.empty((2, 0)), np.array([0.2, 0.9]), np.arange(8.0).reshape(2, 4))
    now = trace_arrays([(3, private)])
    earlier = {k: v for k, v in now.items() if k != "readings"} | {"round": np.array([2])}
    got = trace_of(join_traces([open_, earlier, now]), "here")
    assert got.losses.shape == (3, 3, 2)
    np.testing.assert_array_equal(got.rewards, [[np.nan] * 3, [0.2, 0.9, np.nan], [0.2, 0.9, np.nan]])
    assert got.readings is not None
    assert private.readings is not None
    assert got.readings.shape == (3, 3, 4)
    np.testing.assert_array_equal(got.readings[2, :2], private.readings)
    assert np.isnan(got.readings[:2]).all()
    assert trace_of(join_traces([open_, earlier]), "here").readings is None


def report(n: int = 1, steps: int = 2) -> Reported:
    return Reported(np.arange(n), np.zeros(n, int), np.ones((n, steps)))


def save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    np.savez(path, allow_pickle=False, **arrays)


@pytest.fixture
def traced(tmp_path: Path) -> RunFolder:
    """Rounds 1 to 6 in pieces of two. In round 4 nobody answered, in round 5 clients trained twice."""
    (tmp_path / "trace").mkdir()
    for first, rows in ((1, [(1, 1), (2, 2)]), (3, [(3, 1), (4, 0)]), (5, [(5, 1), (5, 3), (6, 2)])):
        pieces = trace_arrays([(number, report(n)) for number, n in rows])
        save(tmp_path / "trace" / f"{first:08d}-{first + 1:08d}.npz", pieces)
    return RunFolder(tmp_path)


def test_a_trace_is_read_from_its_pieces(traced: RunFolder) -> None:
    assert traced.trace()["round"].tolist() == [1, 2, 3, 4, 5, 5, 6]
    assert (traced.trace()["ids"] >= 0).sum(1).tolist() == [1, 2, 1, 0, 1, 3, 2]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda middle: middle.unlink(), r"before 00000005-00000006\.npz rounds 3 to 4 are missing"),
        (lambda middle: next(middle.parent.glob("00000001*")).unlink(), "rounds 1 to 2 are missing"),
        (lambda middle: shutil.copy(middle, middle.with_name("00000004-00000004.npz")), "round 4 is there twice"),
        (lambda middle: middle.rename(middle.with_name("00000003-00000003.npz")), "rounds 4 to 4 are missing"),
        (lambda middle: shutil.copy(middle.with_name("00000001-00000002.npz"), middle), "do not count from 3 to 4"),
    ],
)
def test_a_trace_with_a_gap_or_rounds_twice_is_no_trace(
    damage: Callable[[Path], object], message: str, traced: RunFolder
) -> None:
    damage(traced.path / "trace" / "00000003-00000004.npz")
    with pytest.raises(InputError, match=message):
        traced.trace()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"round": np.array(["3", "4"])}, "it needs whole numbers round"),
        ({"round": np.array([3, 5])}, "do not count from 3 to 4"),
        ({"round": np.array([4, 3])}, "do not count from 3 to 4"),
        ({"cluster": np.zeros((2, 2), int)}, r"whole numbers cluster of shape \[2, 1\]"),
        ({"L": np.ones((2, 1, 2), int)}, "L floating point, got int64 and int64"),
        ({"rewards": np.array(0.5)}, r"rewards must be \[T, n\]"),
        ({"readings": np.ones((2, 1, 3))}, r"readings must be \[T, n, 4\]"),
        (
            {"ids": np.empty((0, 1), int), "L": np.empty((0, 1, 2)), "cluster": np.empty((0, 1), int), "round": np.arange(0)},
            "count",
        ),
    ],
)
def test_a_piece_that_is_no_trace_is_named(change: dict[str, NDArray[Any]], message: str, traced: RunFolder) -> None:
    path = traced.path / "trace" / "00000003-00000004.npz"
    save(path, trace_arrays([(3, report()), (4, report())]) | {"ids": np.zeros((2, 1), int)} | change)
    with pytest.raises(InputError, match=rf"{path.name}.*{message}"):
        traced.trace()


def test_small_pieces_do_not_make_a_large_trace() -> None:
    """Of one that is long and one that is wide the product was asked for, 335 GiB."""
    long: dict[str, NDArray[Any]] = {"ids": np.zeros((30_000, 1), np.int32), "L": np.zeros((30_000, 1, 1), np.float16)}
    wide: dict[str, NDArray[Any]] = {"ids": np.zeros((1, 30_000), np.int32), "L": np.zeros((1, 30_000, 1), np.float16)}
    with pytest.raises(InputError, match="30,001 rounds of up to 30,000 clients"):
        join_traces([long, wide])
