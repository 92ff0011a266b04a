from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedgwc.data.arrays import arrays
from fedgwc.errors import InputError


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
    with pytest.raises(InputError, match="cannot be read"):
        arrays(seed=0, path=str(tmp_path / "nothing.npz"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no .npz file"):
        arrays(seed=0, path=str(tmp_path / "empty"))


def test_bytes_beside_other_numbers_are_refused(tmp_path: Path) -> None:
    """Bytes are divided by 255, and what stands beside them would not be."""
    save(tmp_path / "a.npz", 4)
    save(tmp_path / "b.npz", 4, x=np.zeros((4, 2), np.uint8))
    with pytest.raises(InputError, match=r"b\.npz has samples of another type than .*a\.npz"):
        arrays(seed=0, path=str(tmp_path))
    save(tmp_path / "a.npz", 4, x=np.zeros((4, 2), np.uint8))
    assert arrays(seed=0, path=str(tmp_path)).n_clients == 2


def test_labels_may_be_true_and_false(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", 4, y=np.array([True, False, True, True]))
    assert arrays(seed=0, path=str(tmp_path)).n_classes == 2
