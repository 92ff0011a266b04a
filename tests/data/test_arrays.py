from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedgwc.core.errors import InputError
from fedgwc.data.sources.arrays import arrays


def save(path: Path, n: int, **more: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values: dict[str, object] = {"x": np.arange(2 * n, dtype=np.float32).reshape(n, 2), "y": np.arange(n) % 3, **more}
    np.savez(path, **values)  # type: ignore[arg-type]


def test_a_file_per_client(tmp_path: Path) -> None:
    save(tmp_path / "c10.npz", 5)
    save(tmp_path / "c2.npz", 4, x_test=np.zeros((2, 2), np.float32), y_test=np.array([0, 3]))
    got = arrays(seed=0, path=str(tmp_path))
    assert (got.n_clients, got.n_classes, got.name) == (2, 4, tmp_path.name)
    assert got.train[0].tolist() == [0, 1, 2, 3]  # c2 comes before c10
    assert got.client_names == ("c2", "c10")
    assert got.test[0].tolist() == [4, 5]
    assert (len(got.train[1]), len(got.test[1])) == (4, 1)


def test_one_file(tmp_path: Path) -> None:
    path = tmp_path / "all.npz"
    client = np.array(["b", "a", "b", "a"])
    save(path, 4, client=client, is_test=np.array([0, 0, 1, 1]), group=np.array([7, 3, 7, 3]))
    got = arrays(seed=0, path=str(path), n_classes=5, mean=(0.5,), std=(2.0,))
    assert got.client_names == ("a", "b")
    assert got.train[0].tolist() == [1]
    assert got.test[1].tolist() == [2]
    assert got.groups is not None
    assert got.groups.tolist() == [0, 1]
    assert (got.n_classes, got.mean, got.std) == (5, (0.5,), (2.0,))
    assert arrays(seed=0, path=str(path), shape=(2,)).shape == (2,)
    with pytest.raises(InputError, match=r"samples of shape \(2,\), and data\.shape is \(1, 2\)"):
        arrays(seed=0, path=str(path), shape=(1, 2))
    save(path, 4, client=client, group=np.array([7, 3, 8, 3]))
    with pytest.raises(InputError, match="two groups"):
        arrays(seed=0, path=str(path))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "lacks client"),
        ({"client": np.zeros(3)}, r"client has the shape \(3,\)"),
        ({"client": np.array([{}] * 4, object)}, "cannot be read"),
        ({"client": np.zeros(4), "x_test": np.zeros((1, 2))}, "only one of x_test and y_test"),
        ({"client": np.zeros(4), "y": np.zeros(4)}, "whole numbers"),
        ({"client": np.arange(4)}, "at least 2"),
        ({"client": np.zeros(4), "x": np.array(["a"] * 4)}, "x must hold numbers, got <U1"),
        ({"client": np.zeros(4), "x": np.zeros(4)}, r"a\.npz: x has the shape \(4,\); .*x\[:, None\]"),
        ({"client": np.zeros(4), "x": np.full((4, 2), np.nan)}, r"a\.npz: x holds nan"),
        ({"client": np.zeros(4), "x": np.full((4, 2), 1e300)}, r"a\.npz: x holds 1e\+300; training needs finite 32-bit numbers"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, more: dict[str, object], message: str) -> None:
    save(tmp_path / "a.npz", 4, **more)
    with pytest.raises(InputError, match=message):
        arrays(seed=0, path=str(tmp_path / "a.npz"))


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    save(tmp_path / "whole.npz", 400, client=np.zeros(400))
    raw = (tmp_path / "whole.npz").read_bytes()
    damaged = raw[:300] + bytes(64) + raw[364:]
    for content in (b"", b"text", raw[: len(raw) // 2], damaged):
        (tmp_path / "half.npz").write_bytes(content)
        with pytest.raises(InputError, match=r"half.npz cannot be read"):
            arrays(seed=0, path=str(tmp_path / "half.npz"))
    with pytest.raises(InputError, match=r"there is no .*nothing\.npz; give an \.npz file"):
        arrays(seed=0, path=str(tmp_path / "nothing.npz"))
    with pytest.raises(InputError, match="there is no nowhere, seen from /"):
        arrays(seed=0, path="nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty has no \.npz file; it needs one per client"):
        arrays(seed=0, path=str(tmp_path / "empty"))
    (tmp_path / "empty" / "client.csv").write_text("x,y")
    with pytest.raises(InputError, match=r"no \.npz file; it has client\.csv, say, and is not searched further down"):
        arrays(seed=0, path=str(tmp_path / "empty"))


def test_bytes_beside_other_numbers_are_refused(tmp_path: Path) -> None:
    """Bytes are divided by 255, and what stands beside them would not be."""
    save(tmp_path / "a.npz", 4)
    save(tmp_path / "b.npz", 4, x=np.zeros((4, 2), np.uint8))
    with pytest.raises(InputError, match=r"b\.npz has bytes, which are divided by 255, and .*a\.npz numbers that"):
        arrays(seed=0, path=str(tmp_path))
    save(tmp_path / "a.npz", 4, x=np.zeros((4, 2), np.uint8))
    assert arrays(seed=0, path=str(tmp_path)).n_clients == 2


def test_labels_may_be_true_and_false(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", 4, y=np.array([True, False, True, True]))
    assert arrays(seed=0, path=str(tmp_path)).n_classes == 2


def test_files_of_systems_and_folders_within_are_no_clients(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", 4)
    (tmp_path / "a.npz").rename(tmp_path / "a.NPZ")
    save(tmp_path / "within" / "b.npz", 4)
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "._a.npz").write_bytes(b"a Mac's notes")
    (tmp_path / "readme.csv").write_text("1,2")
    assert arrays(seed=0, path=str(tmp_path)).client_names == ("a",)


def test_a_client_says_its_group_and_which_samples_are_for_testing(tmp_path: Path) -> None:
    is_test = np.array([0, 1, 0, 0])
    save(tmp_path / "a.npz", 4, group="night", is_test=is_test)
    save(tmp_path / "b.npz", 4, group="day", is_test=is_test, anything=np.array([{}]))  # which nobody reads
    got = arrays(seed=0, path=str(tmp_path))
    assert got.groups is not None
    assert (got.groups.tolist(), got.test[1].tolist()) == ([1, 0], [5])
    save(tmp_path / "b.npz", 4, is_test=is_test)
    with pytest.raises(InputError, match=r"b\.npz has no group, and .*a\.npz a group; give every client one, or none"):
        arrays(seed=0, path=str(tmp_path))


TESTS = {"x_test": np.zeros((1, 2), np.float32), "y_test": np.array([0])}


@pytest.mark.parametrize(
    ("more", "settings", "message"),
    [
        ({**TESTS, "x_test": np.zeros((1, 3), np.float32)}, {}, r"samples of shape \(2,\) and x_test of \(3,\); make them alike"),
        ({**TESTS, "is_test": np.ones(4)}, {}, "x_test and is_test; give one of them"),
        ({"x_test": np.zeros((0, 2)), "y_test": np.zeros(0, int)}, {}, "client b has no test sample; give it one"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0, int), **TESTS}, {}, "client b has no training sample"),
        (
            {"is_test": np.array(["no", "yes"] * 2)},
            {},
            r"is_test must hold true and false, or 1 and 0, got \['no', 'yes', 'no'\]",
        ),
        ({"y": np.array(["cat", "dog"] * 2)}, {}, r"b\.npz: y must hold whole numbers, got <U3; number the classes from 0"),
        ({"y": np.array([0, 1, -1, 0])}, {}, r"b\.npz: y holds -1; number the classes from 0"),
        ({"y": np.array([0, 1, 10**12, 0])}, {}, r"b\.npz: y holds 1000000000000, and there are 8 samples in all; number"),
        ({}, {"n_classes": 2}, r"a\.npz: y holds 2, and data\.n_classes is 2; set it to 3 or more"),
        ({"x": np.zeros((4, 3), np.float32)}, {}, r"b\.npz has samples of shape \(3,\), and .*a\.npz samples of shape \(2,\)"),
        ({"group": np.array([1, 1, 2, 1])}, {}, r"b\.npz: group holds \[1, 2\]; a client belongs to one"),
        ({}, {"mean": (0.0, 0.0)}, r"data\.mean needs 1 value, for samples of shape \(2,\), got 2"),
        ({}, {"std": (0.0,)}, r"data\.std must be finite and at least 1e-30, got \[0\.0\]"),
        ({}, {"std": (1e-320,)}, r"data\.std must be finite and at least 1e-30, got \[1e-320\]"),
        (
            {"y": np.array([0, 1, 10**9, 0])},
            {"n_classes": 2 * 10**9},
            "at most 1,000,000 classes, got 2,000,000,000; number them",
        ),
        ({}, {"augment": True}, r"data\.augment crops and flips images \(channels, height, width\)"),
    ],
)
def test_what_is_wrong_with_one_client_is_named(
    tmp_path: Path, more: dict[str, object], settings: dict[str, object], message: str
) -> None:
    save(tmp_path / "a.npz", 4, **({"group": 1} if "group" in more else {}))
    save(tmp_path / "b.npz", 4, **more)
    with pytest.raises(InputError, match=message):
        arrays(seed=0, path=str(tmp_path), **settings)  # type: ignore[arg-type]


def test_one_file_says_of_every_sample_whose_it_is(tmp_path: Path) -> None:
    for more, message in (
        ({"client": np.array([0, 0, 1, np.nan])}, "client holds nan"),
        ({"client": np.array([0, 0, 1, 1]), **TESTS}, "x_test, which nobody owns"),
        ({"client": np.array([0, 0, 1, 1]), "group": 1}, "group has one value for all clients"),
        ({"client": np.array([0, 0, 1, 1]), "is_test": np.array([0, 1, 1, 1])}, "client 1 has no training sample"),
    ):
        save(tmp_path / "all.npz", 4, **more)
        with pytest.raises(InputError, match=message):
            arrays(seed=0, path=str(tmp_path / "all.npz"))


def test_samples_hold_something(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", 6, x=np.zeros((6, 0)))
    with pytest.raises(InputError, match=r"samples of shape \(0,\), which hold nothing"):
        arrays(seed=0, path=str(tmp_path))


def test_one_mean_and_deviation_are_for_all_channels(tmp_path: Path) -> None:
    for shape, channels in (((2,), 1), ((4, 4), 4), ((3, 4, 4), 3)):
        save(tmp_path / "a.npz", 4, x=np.zeros((4, *shape), np.uint8))
        got = arrays(seed=0, path=str(tmp_path), mean=(0.5,), std=(0.2,))
        assert (got.mean, got.std) == ((0.5,) * channels, (0.2,) * channels)


def test_classes_that_are_tested_and_never_trained_count(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", 4, x_test=np.zeros((1, 2), np.float32), y_test=np.array([7]))
    assert arrays(seed=0, path=str(tmp_path)).n_classes == 8
