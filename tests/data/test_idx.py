from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedgwc.core.errors import InputError
from fedgwc.data import Group
from fedgwc.data.sources.emnist import emnist, emnist_pool, mnist, mnist_pool
from fedgwc.data.sources.synthetic import idx_bytes, write_idx
from fedgwc.io import idx


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_idx_comes_back(tmp_path: Path, name: str) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_idx(tmp_path / name, array)
    np.testing.assert_array_equal(idx.read(tmp_path / name, 3), array)
    with pytest.raises(InputError, match="1 axes"):
        idx.read(tmp_path / name, 1)


@pytest.mark.parametrize("packed", [False, True])
def test_a_huge_promise_is_refused_before_allocating(tmp_path: Path, packed: bool) -> None:
    raw = idx_bytes(np.zeros(10), (10**6, 10**6, 1))
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(raw) if packed else raw)
    with pytest.raises(InputError, match="promises 1000000000000 bytes"):
        idx.read(path, 3)


@pytest.mark.parametrize("claimed", [9, 11])
def test_a_length_that_does_not_fit_is_refused(tmp_path: Path, claimed: int) -> None:
    raw = idx_bytes(np.zeros(10), (claimed,))
    for data in (raw, gzip.compress(raw), gzip.compress(raw)[:-9], raw[:5], b""):
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(InputError):
            idx.read(tmp_path / "a", 1)


def write_set(folder: Path, train: str, test: str, suffix: str = ".gz") -> np.ndarray:
    """10 + 4 images whose top right corner is bright as the file stores them."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, n in ((train, 10), (test, 4)):
        images = np.zeros((n, 28, 28), np.uint8)
        images[:, 2, 25] = 200 + np.arange(n)
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", np.arange(n))
    return images


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_emnist_is_turned_upright(tmp_path: Path, suffix: str) -> None:
    write_set(tmp_path / "emnist", "emnist-bymerge-train", "emnist-bymerge-test", suffix)
    pool = emnist_pool(tmp_path)
    assert pool.x.shape == (14, 1, 28, 28)
    assert pool.x[:, 0, 25, 2].tolist() == [*range(200, 210), *range(200, 204)]
    assert (pool.n_classes, len(pool.train), len(pool.test)) == (47, 10, 4)
    got = emnist(seed=0, root=str(tmp_path), groups=(Group(2),), train_size=5, test_size=2)
    assert got.n_clients == 2
    with pytest.raises(InputError, match="emnist-balanced-train-images"):
        emnist(seed=0, root=str(tmp_path), split="balanced")


def test_emnist_straight_from_the_zip(tmp_path: Path) -> None:
    write_set(tmp_path / "gzip", "emnist-bymerge-train", "emnist-bymerge-test")
    with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
        for path in list((tmp_path / "gzip").iterdir()):
            archive.write(path, f"gzip/{path.name}")
            path.unlink()
    assert emnist_pool(tmp_path).x[0, 0, 25, 2] == 200


def test_mnist_is_upright_already(tmp_path: Path) -> None:
    write_set(tmp_path, "train", "t10k")
    assert mnist_pool(tmp_path).x[0, 0, 2, 25] == 200
    assert mnist(seed=0, root=str(tmp_path), groups=(Group(2),), train_size=5, test_size=2).n_classes == 10
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.array([0, 1, 2, 10]))
    with pytest.raises(InputError, match="labels up to 10"):
        mnist_pool(tmp_path)
