"""CIFAR-10 and CIFAR-100 from their official files.

Python or binary layout, unpacked or still in the .tar.gz.

An archive is checked by its published checksum and read in memory, an unpacked folder is checked by its content.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids
from fedgwc.data.pool import Pool
from fedgwc.data.sources.roots import Root, candidate_folders, not_found
from fedgwc.io import safe_pickle
from fedgwc.io.checksum import check

PIXELS = 3 * 32 * 32
COUNTS = (50_000, 10_000)  # train and test images of either set


@dataclass(frozen=True)
class Layout:
    folder: str
    archive: str
    checksum: str
    train: tuple[str, ...]
    test: str
    binary: bool = False


@dataclass(frozen=True)
class Kind:
    name: str
    n_classes: int
    labels: str  # key of the python layout
    label_bytes: int  # per image of the binary layout; the last one is the fine label
    layouts: tuple[Layout, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Cifar:
    x: Tensor  # [R, 3, 32, 32] uint8, train rows first
    y: Tensor  # [R]
    n_train: int
    names: tuple[str, ...]  # [R] file names; empty in the binary layout, which has none

    def pool(self, kind: Kind) -> Pool:
        rows = np.arange(len(self.y))
        train, test = rows[: self.n_train], rows[self.n_train :]
        return Pool(self.x, self.y, train, test, kind.n_classes, kind.mean, kind.std, kind.name, names=self.names)


_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
CIFAR10 = Kind(
    "cifar10",
    10,
    "labels",
    1,
    (
        Layout("cifar-10-batches-py", "cifar-10-python.tar.gz", "md5:c58f30108f718f92721af3b95e74349a", _BATCHES, "test_batch"),
        Layout(
            "cifar-10-batches-bin",
            "cifar-10-binary.tar.gz",
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
            tuple(f"{b}.bin" for b in _BATCHES),
            "test_batch.bin",
            binary=True,
        ),
    ),
    (0.4914, 0.4822, 0.4465),
    (0.2470, 0.2435, 0.2616),
)
CIFAR100 = Kind(
    "cifar100",
    100,
    "fine_labels",
    2,
    (
        Layout("cifar-100-python", "cifar-100-python.tar.gz", "md5:eb9058c3a382ffc7106e4002c42a8d85", ("train",), "test"),
        Layout(
            "cifar-100-binary",
            "cifar-100-binary.tar.gz",
            "md5:03b5dce01913d631647c71ecec9e9cb8",
            ("train.bin",),
            "test.bin",
            binary=True,
        ),
    ),
    (0.5071, 0.4865, 0.4409),
    (0.2673, 0.2564, 0.2762),
)


def read(kind: Kind, root: Root = None, counts: tuple[int, int] = COUNTS) -> Cifar:
    """Read the whole set, which must have `counts` train and test images."""
    layout, place = _find(kind, root)
    slots = _slots(layout, counts)
    x = np.empty((sum(counts), PIXELS), np.uint8)
    y = np.empty(sum(counts), np.int64)
    names = [""] * sum(counts)
    for name, stream in _members(layout, place, set(slots)):
        rows = slots.pop(name)
        n = rows.stop - rows.start
        part = _binary(stream, kind, n, name) if layout.binary else _python(stream, kind, n, name)
        x[rows], y[rows], names[rows] = part
    if slots:
        raise InputError(f"{place} lacks {', '.join(sorted(slots))}; unpack or download {layout.archive} again")
    if y.min() < 0 or y.max() >= kind.n_classes:
        raise InputError(f"{place}: labels must be in 0..{kind.n_classes - 1}, got {y.min()}..{y.max()}; get the official files")
    images = torch.from_numpy(x.reshape(-1, 3, 32, 32))
    return Cifar(images, torch.from_numpy(y), counts[0], () if layout.binary else tuple(names))


def _find(kind: Kind, root: Root) -> tuple[Layout, Path]:
    """Find the first layout: unpacked before packed, python before binary."""
    for place in candidate_folders(kind.name, root):
        for layout in kind.layouts:
            for folder in (place / layout.folder, place):
                if (folder / layout.test).is_file():
                    return layout, folder
        for layout in kind.layouts:
            for archive in (place / layout.archive, place):
                if archive.name == layout.archive and archive.is_file():
                    return layout, archive
    wanted = [name for layout in kind.layouts for name in (f"{layout.folder}/", layout.archive)]
    raise not_found(kind.name, wanted, root)


def _slots(layout: Layout, counts: tuple[int, int]) -> dict[str, slice]:
    """Return the rows that each file fills."""
    per_file = counts[0] // len(layout.train)
    slots = {name: slice(i * per_file, (i + 1) * per_file) for i, name in enumerate(layout.train)}
    return {**slots, layout.test: slice(counts[0], sum(counts))}


def _members(layout: Layout, place: Path, wanted: set[str]) -> Iterator[tuple[str, BinaryIO]]:
    if place.is_dir():
        for name in sorted(wanted):
            if (place / name).is_file():
                with (place / name).open("rb") as stream:
                    yield name, stream
        return
    check(place, layout.checksum)
    try:
        with tarfile.open(place, "r|gz") as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts or not (member.isreg() or member.isdir()):
                    raise InputError(f"{place} holds {member.name!r}, no plain file inside it; get the official archive")
                if path.parent.name == layout.folder and path.name in wanted:
                    with cast(BinaryIO, archive.extractfile(member)) as content:
                        yield path.name, content
    except (tarfile.TarError, OSError, EOFError, OverflowError, TypeError, zlib.error) as error:
        raise InputError(f"cannot read {place} ({error}); it is damaged: download it again") from error


def _python(stream: BinaryIO, kind: Kind, n: int, name: str) -> tuple[NDArray[np.uint8], Ids, list[str]]:
    batch = safe_pickle.load(stream, name)
    if not isinstance(batch, dict):
        raise InputError(f"{name} holds a {type(batch).__name__}, not the dict of {kind.name}; get the official file")
    found = {k.decode("latin1") if isinstance(k, bytes) else str(k): v for k, v in batch.items()}
    lacking = {"data", kind.labels, "filenames"} - set(found)
    if lacking:
        raise InputError(f"{name} has the keys {sorted(found)} but lacks {sorted(lacking)}; is it {kind.name}?")
    data, labels, names = found["data"], found[kind.labels], found["filenames"]
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != (n, PIXELS):
        came = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise InputError(f"{name} has data of {came}, {kind.name} has uint8 ({n}, {PIXELS}); get the official file")
    if len(labels) != n or len(names) != n or not all(type(label) is int for label in labels):
        raise InputError(f"{name} has {len(labels)} labels and {len(names)} file names for {n} images; get the official file")
    return data, np.array(labels, np.int64), [f.decode("latin1") if isinstance(f, bytes) else str(f) for f in names]


def _binary(stream: BinaryIO, kind: Kind, n: int, name: str) -> tuple[NDArray[np.uint8], Ids, list[str]]:
    record = kind.label_bytes + PIXELS
    raw = stream.read(n * record + 1)  # one more than it may have, never more than that
    if len(raw) != n * record:
        raise InputError(f"{name} must have {n * record} bytes ({n} records of {record}), got {len(raw)} or more; get it again")
    table = np.frombuffer(raw, np.uint8).reshape(n, record)
    return table[:, kind.label_bytes :], table[:, kind.label_bytes - 1].astype(np.int64), [""] * n
