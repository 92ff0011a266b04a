from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from fedgwc.core.errors import InputError
from fedgwc.data.sources import catalogue
from fedgwc.data.sources import fetch as sources
from fedgwc.data.sources.catalogue import SOURCES
from fedgwc.data.sources.synthetic import write_idx

from .made_files import packed


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_says_what_it_needs(name: str, tmp_path: Path) -> None:
    got = sources.status(name, tmp_path)
    assert got.missing
    assert got.by_hand
    assert got.looked == (tmp_path / name, tmp_path)
    assert [check.ok for check in sources.verify(name, tmp_path)] == [False]
    for need in SOURCES[name].needs:
        if need.file:
            assert all(url.startswith("https://") and url.endswith(need.file.name) for url in need.file.urls)


def test_disk_counts_each_file_once_and_the_cache() -> None:
    assert sources.disk_needed("emnist") == 561_753_746
    assert sources.disk_needed("landmarks", 64) - sources.disk_needed("landmarks", 32) == 183_698 * 3 * (64**2 - 32**2)


def test_prepare_fetches_from_a_given_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror, root = tmp_path / "mirror", tmp_path / "root"
    mirror.mkdir()
    for part, n in (("train", 3), ("t10k", 2)):
        write_idx(mirror / f"{part}-images-idx3-ubyte.gz", np.zeros((n, 28, 28)))
        write_idx(mirror / f"{part}-labels-idx1-ubyte.gz", np.zeros(n))
    with pytest.raises(InputError, match="is not the file"):  # the published checksums hold for every address
        sources.prepare("mnist", root, url=mirror.as_uri())
    assert list((root / "mnist").iterdir()) == []
    for need in SOURCES["mnist"].needs:
        assert need.file is not None
        monkeypatch.setitem(need.file.__dict__, "checksum", "")
    seen: list[str] = []
    got = sources.prepare("mnist", root, url=mirror.as_uri(), progress=lambda what, done, total: seen.append(what))
    assert len(got.fetched) == 4
    assert (got.missing, got.by_hand) == ((), "")
    assert "t10k-labels-idx1-ubyte.gz" in seen
    assert sources.verify("mnist", root)[-1] == sources.Check("content", True, "3 train and 2 test images, 10 classes")
    shutil.rmtree(mirror)
    assert sources.prepare("mnist", root).fetched == ()  # what is there is not fetched again


def test_verify_tells_a_damaged_archive(cifar100_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cifar100").mkdir()
    packed(cifar100_folder, tmp_path / "cifar100" / "cifar-100-python.tar.gz")
    shutil.rmtree(cifar100_folder)
    assert sources.missing("cifar100", tmp_path) == ()
    checks = sources.verify("cifar100", tmp_path)
    assert [check.ok for check in checks] == [False, False]
    assert "expected md5:eb9058" in checks[0].detail


def test_user_sets_are_decoded_and_checked(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="photographs need the extra `images`")
    folder = tmp_path / "inaturalist"
    (folder / "images").mkdir(parents=True)
    lines = "".join(f"u{i % 2},i{i},{i % 3},9\n" for i in range(6))
    (folder / "federated_train_user_120k.csv").write_text("user_id,image_id,class,label\n" + lines)
    (folder / "test.csv").write_text("image_id,class,label\ni6,0,9\n")
    for i in range(6):
        image.new("RGB", (10, 10)).save(folder / "images" / f"i{i}.jpg")
    got = sources.prepare("inaturalist", tmp_path, size=8)
    assert (got.decoded, got.missing) == (6, ())
    (check,) = sources.verify("inaturalist", tmp_path)
    assert check.ok
    assert "2 users, 6 train and 1 test images, 3 classes" in check.detail
    shutil.rmtree(folder / "images")
    (folder / "images").mkdir()
    assert "6 train images are not there" in sources.verify("inaturalist", tmp_path)[0].detail


def test_unknown_sources_are_named() -> None:
    with pytest.raises(InputError, match="choose from cifar10, cifar100"):
        sources.missing("cifar")
    assert vars(sources)["SOURCES"] is catalogue.SOURCES
