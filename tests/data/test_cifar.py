from __future__ import annotations

import gzip
import json
import os
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedgwc.core.errors import InputError
from fedgwc.data import Federation, Group
from fedgwc.data.sources import cifar, cifar_sets
from fedgwc.data.sources.synthetic import cifar_batches, write_cifar
from fedgwc.io.checksum import checksum

from .made_files import COUNTS, packed


def with_checksum(kind: cifar.Kind, archive: Path) -> cifar.Kind:
    """The kind as if `archive` were the published one."""
    return replace(kind, layouts=(replace(kind.layouts[0], checksum=checksum(archive, "md5")), *kind.layouts[1:]))


def test_python_layout(cifar100_folder: Path) -> None:
    got = cifar.read(cifar.CIFAR100, cifar100_folder.parent, COUNTS)
    train, test = cifar_batches(cifar.CIFAR100, COUNTS).values()
    assert got.x.shape == (14, 3, 32, 32)
    np.testing.assert_array_equal(got.x.numpy().reshape(14, -1), np.concatenate([train[b"data"], test[b"data"]]))
    assert got.y.tolist() == [*range(10), *range(4)]
    assert got.names[:3] == ("same.png", "same.png", "train_2.png")
    pool = got.pool(cifar.CIFAR100)
    assert (len(pool.train), len(pool.test), pool.mean[0]) == (10, 4, 0.5071)


@pytest.mark.parametrize("place", [".", "cifar100", "cifar100/cifar-100-python"])
def test_folder_is_found(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / place
    write_cifar(cifar.CIFAR100, folder if place.endswith("python") else folder / "cifar-100-python", COUNTS, protocol=2)
    monkeypatch.setenv("FEDGWC_DATA", str(tmp_path))
    assert len(cifar.read(cifar.CIFAR100, None, COUNTS).y) == 14
    assert len(cifar.read(cifar.CIFAR100, tmp_path, COUNTS).y) == 14


def test_all_layouts_agree(tmp_path: Path) -> None:
    batches = cifar_batches(cifar.CIFAR10, COUNTS)
    python, binary = tmp_path / "a" / "cifar-10-batches-py", tmp_path / "b" / "cifar-10-batches-bin"
    for folder in (python, binary):
        folder.mkdir(parents=True)
    for name, batch in batches.items():
        (python / name).write_bytes(pickle.dumps(batch, 2))
        rows = np.concatenate([np.array(batch[b"labels"], np.uint8)[:, None], batch[b"data"]], 1)
        (binary / f"{name}.bin").write_bytes(rows.tobytes())
    archive = packed(python, tmp_path / "cifar-10-python.tar.gz")
    one = cifar.read(cifar.CIFAR10, python.parent, COUNTS)
    two = cifar.read(cifar.CIFAR10, binary.parent, COUNTS)
    three = cifar.read(with_checksum(cifar.CIFAR10, archive), archive, COUNTS)
    for other in (two, three):
        assert (one.x == other.x).all()
        assert one.y.tolist() == other.y.tolist()
    assert two.names == ()
    assert three.names == one.names


def test_binary_cifar100_has_coarse_and_fine_labels(tmp_path: Path) -> None:
    for name, n in (("train.bin", 10), ("test.bin", 4)):
        rows = np.zeros((n, 2 + 3072), np.uint8)
        rows[:, 0], rows[:, 1] = 9, np.arange(n)
        (tmp_path / name).write_bytes(rows.tobytes())
    assert cifar.read(cifar.CIFAR100, tmp_path, COUNTS).y.tolist() == [*range(10), *range(4)]
    (tmp_path / "test.bin").write_bytes(rows.tobytes()[:-1])
    with pytest.raises(InputError, match="must have 12296 bytes"):
        cifar.read(cifar.CIFAR100, tmp_path, COUNTS)


def test_an_unpublished_archive_is_refused(cifar100_folder: Path, tmp_path: Path) -> None:
    archive = packed(cifar100_folder, tmp_path / "cifar-100-python.tar.gz")
    with pytest.raises(InputError, match="expected md5:eb9058c3a382ffc7106e4002c42a8d85"):
        cifar.read(cifar.CIFAR100, archive, COUNTS)


@pytest.mark.parametrize("name", ["../evil", "/evil", "cifar-100-python/../../evil", "link"])
def test_members_that_point_elsewhere_are_refused(cifar100_folder: Path, tmp_path: Path, name: str) -> None:
    extra = tarfile.TarInfo(name)
    if name == "link":
        extra.type, extra.linkname = tarfile.SYMTYPE, "/etc"
    archive = packed(cifar100_folder, tmp_path / "cifar-100-python.tar.gz", extra)
    with pytest.raises(InputError, match="no plain file inside it"):
        cifar.read(with_checksum(cifar.CIFAR100, archive), archive, COUNTS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({b"data": np.zeros((4, 3071), np.uint8)}, "has data of uint8"),
        ({b"data": np.zeros((4, 3072))}, "has data of float64"),
        ({b"data": None}, "has data of NoneType"),
        ({b"fine_labels": [0, 1, 2, 100]}, "got 0..100"),
        ({b"fine_labels": [0, 1, 2]}, "3 labels"),
        ({b"fine_labels": [0, 1, 2, "3"]}, "labels"),
    ],
)
def test_wrong_content_is_named(cifar100_folder: Path, change: dict[bytes, object], message: str) -> None:
    batch = {**cifar_batches(cifar.CIFAR100, COUNTS)["test"], **change}
    (cifar100_folder / "test").write_bytes(pickle.dumps(batch))
    with pytest.raises(InputError, match=message):
        cifar.read(cifar.CIFAR100, cifar100_folder, COUNTS)


def test_missing_data_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"looked in .*cifar100 and .*fedgwc data prepare cifar100"):
        cifar_sets.cifar100(seed=0, root=str(tmp_path))
    (tmp_path / "test").write_bytes(pickle.dumps(cifar_batches(cifar.CIFAR100, COUNTS)["test"]))
    with pytest.raises(InputError, match="lacks train"):
        cifar.read(cifar.CIFAR100, tmp_path, COUNTS)


def federation(folder: Path, partition: Path | None = None, groups: tuple[Group, ...] = ()) -> Federation:
    path = str(partition) if partition else None
    return cifar_sets._federation(cifar.CIFAR100, str(folder), groups, 2, 1, 0, True, path, COUNTS)


def test_groups_are_dealt_out(cifar100_folder: Path) -> None:
    got = federation(cifar100_folder, groups=(Group(4),))
    assert got.train.sizes.tolist() == [2] * 4
    assert (got.augment, got.name, got.n_classes) == (True, "cifar100", 100)


def authors_file(path: Path, train: list[list[int]], test: list[list[int]]) -> Path:
    batches = cifar_batches(cifar.CIFAR100, COUNTS)

    def images(split: str, rows: list[int]) -> dict[str, list[object]]:
        names, labels = batches[split][b"filenames"], batches[split][b"fine_labels"]
        return {"x": [names[r].decode() for r in rows], "y": [labels[r] for r in rows]}

    table = {
        str(k): {"train": images("train", a), "test": images("test", b)} for k, (a, b) in enumerate(zip(train, test, strict=True))
    }
    raw = json.dumps({**table, "server_imgs": images("test", [0])}).encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.mark.parametrize("name", ["p.json", "p.json.gz"])
def test_authors_partition_is_read_exactly(cifar100_folder: Path, tmp_path: Path, name: str) -> None:
    path = authors_file(tmp_path / name, [[1, 5], [0, 9]], [[1], [0, 3]])
    got = federation(cifar100_folder, path)
    assert got.train[0].tolist() == [1, 5]
    assert got.train[1].tolist() == [0, 9]  # `same.png` twice, told apart by label
    assert got.test[0].tolist() == [11]  # and again in the test split
    assert got.test[1].tolist() == [10, 13]
    assert "1 test images belong to nobody" in got.notes[0]


def test_authors_partition_can_be_a_groups(cifar100_folder: Path, tmp_path: Path) -> None:
    """Beside other groups, which get what it leaves."""
    path = authors_file(tmp_path / "p.json", [[1, 5], [0, 9]], [[1], [0]])
    got = federation(cifar100_folder, groups=(Group(2, "file", path=str(path)), Group(1)))
    assert [got.train[k].tolist() for k in (0, 1)] == [[1, 5], [0, 9]]
    assert [got.test[k].tolist() for k in (0, 1)] == [[11], [10]]
    assert set(got.train[2]) <= {2, 3, 4, 6, 7, 8}


def test_authors_partition_must_fit(cifar100_folder: Path, tmp_path: Path) -> None:
    path = authors_file(tmp_path / "p.json", [[1, 5], [1]], [[1], [0]])
    with pytest.raises(InputError, match="two clients"):
        federation(cifar100_folder, path)
    path.write_text(path.read_text().replace("train_5", "train_99"))
    with pytest.raises(InputError, match=r"client 0, train: no image \('train_99.png', 5\)"):
        federation(cifar100_folder, path)
    for text in ("[]", "{", '{"a": {}}', '{"0": {"train": {"x": ["a"], "y": []}}}'):
        path.write_text(text)
        with pytest.raises(InputError, match="partition file"):
            federation(cifar100_folder, path)
    with pytest.raises(InputError, match="there is no partition file"):
        federation(cifar100_folder, tmp_path / "nothing.json")


def test_user_split_of_cifar(cifar100_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "federated_train.csv"
    path.write_text("user_id,image_id,class\n" + "".join(f"{i % 2},{i},{i}\n" for i in range(10)))
    got = federation(cifar100_folder, path)
    assert sorted([*got.train[0], *got.test[0]]) == [0, 2, 4, 6, 8]
    assert got.test.sizes.tolist() == [1, 1]
    assert got.global_test is not None
    assert got.global_test.tolist() == [10, 11, 12, 13]
    path.write_text("user_id,image_id,class\n0,1,2\n")
    with pytest.raises(InputError, match="other images or classes"):
        federation(cifar100_folder, path)


POINTER = "FEDGWC_TEST_CIFAR100"


@pytest.mark.skipif(POINTER not in os.environ, reason=f"set {POINTER} to a folder with the real cifar-100-python")
def test_the_real_cifar100() -> None:
    got = cifar.read(cifar.CIFAR100, os.environ[POINTER])
    assert set(np.bincount(got.y[:50_000])) == {500}
    assert set(np.bincount(got.y[50_000:])) == {100}
    means = [got.x[:50_000, c].double().mean().item() / 255 for c in range(3)]
    np.testing.assert_allclose(means, [0.5071, 0.4865, 0.4409], atol=6e-5)
