"""Tiny synthetic files in the real data sets' formats.

Recipes run on them where the real data are missing.

`--scale smoke` and the tests use them. The readers take them for what they are: files of the right format but other
counts, so a CIFAR of another size has to be announced by `data.images`.
"""

from __future__ import annotations

import gzip
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.core.errors import InputError
from fedgwc.data.sources.cifar import CIFAR10, CIFAR100, PIXELS, Kind
from fedgwc.data.sources.fedvision import INATURALIST, LANDMARKS, UserSet
from fedgwc.data.sources.roots import Root, data_root

FOLDER = "made-1"  # below the data root; another number whenever what is written here changes
IMAGES = (1000, 500)  # train and test images of a synthetic CIFAR; ten and five of each of 100 classes
EMNIST = {"train": 940, "test": 470}  # twenty and ten of each of 47 classes


def synthetic_root(root: Root = None) -> Path:
    return data_root(root) / FOLDER


def settings(name: str, root: Path) -> dict[str, Any]:
    """Return the [data] settings for reading the files of `write`.

    There are none if its files cannot be generated.
    """
    if name not in WRITERS:
        return {}
    counts = {"images": list(IMAGES)} if name in ("cifar10", "cifar100") else {}
    return {"root": str(root), **counts}


def write(name: str, root: Path) -> None:
    """Write the data set `name` below `root`, unless it exists."""
    if (root / name).is_dir():
        return
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as place:
        fresh = Path(place) / name
        WRITERS[name](fresh)
        try:
            os.rename(fresh, root / name)  # whole or not at all
        except OSError:
            if not (root / name).is_dir():  # else another process was faster, with the same content
                raise


# CIFAR, python layout


def cifar_batches(kind: Kind, counts: tuple[int, int] = IMAGES) -> dict[str, dict[bytes, Any]]:
    """Generate each file of the python layout, the test file last.

    Classes take turns.
    """
    rng = np.random.default_rng(0)
    train, test = kind.layouts[0].train, kind.layouts[0].test
    sizes = {**dict.fromkeys(train, counts[0] // len(train)), test: counts[1]}
    return {
        name: {
            b"data": rng.integers(0, 256, (n, PIXELS)).astype(np.uint8),
            kind.labels.encode(): [i % kind.n_classes for i in range(n)],
            # one name for two images, as in the real set: only the label tells them apart
            b"filenames": [b"same.png" if i < 2 else f"{name}_{i}.png".encode() for i in range(n)],
        }
        for name, n in sizes.items()
    }


def write_cifar(kind: Kind, folder: Path, counts: tuple[int, int] = IMAGES, protocol: int = 4) -> Path:
    folder.mkdir(parents=True)
    for name, batch in cifar_batches(kind, counts).items():
        (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    return folder


# EMNIST, idx files


def idx_bytes(array: NDArray[Any], shape: tuple[int, ...] | None = None) -> bytes:
    """Encode an array in idx format.

    `shape` is the shape in the header, by default the true one.
    """
    claimed = array.shape if shape is None else shape
    return bytes([0, 0, 8, len(claimed)]) + np.array(claimed, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def write_idx(path: Path, array: NDArray[Any]) -> None:
    raw = idx_bytes(array)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def write_emnist(folder: Path) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for part, n in EMNIST.items():
        write_idx(folder / f"emnist-bymerge-{part}-images-idx3-ubyte.gz", rng.integers(0, 256, (n, 28, 28)))
        write_idx(folder / f"emnist-bymerge-{part}-labels-idx1-ubyte.gz", np.arange(n) % 47)


# User splits: two csv files and a folder of photographs


def write_users(
    users: UserSet, folder: Path, n_users: int = 24, images: int = 5, n_classes: int = 12, side: tuple[int, int] = (40, 30)
) -> Path:
    """Write `images` photographs of one colour for every user.

    The test csv has one of each class.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("photographs need Pillow: install fedgwc with its extra `images`") from error
    (folder / "images").mkdir(parents=True)
    label = users is INATURALIST  # that split has one more column
    n_train = n_users * images
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.integers(0, n_classes, n_train), np.arange(n_classes)])
    rows = [f"img{i},{c}" + (",0" if label else "") for i, c in enumerate(y)]
    more = ",label" if label else ""
    owned = [f"{i // images},{row}" for i, row in enumerate(rows[:n_train])]
    (folder / users.train).write_text("\n".join([f"user_id,image_id,class{more}", *owned, ""]), encoding="utf-8")
    (folder / "test.csv").write_text("\n".join([f"image_id,class{more}", *rows[n_train:], ""]), encoding="utf-8")
    for i, colour in enumerate(rng.integers(0, 256, (len(y), 3)).tolist()):
        Image.new("RGB", side, tuple(colour)).save(folder / "images" / f"img{i}.jpg")
    return folder


WRITERS: dict[str, Callable[[Path], object]] = {
    "cifar10": lambda folder: write_cifar(CIFAR10, folder / CIFAR10.layouts[0].folder),
    "cifar100": lambda folder: write_cifar(CIFAR100, folder / CIFAR100.layouts[0].folder),
    "emnist": write_emnist,
    "landmarks": lambda folder: write_users(LANDMARKS, folder),
    "inaturalist": lambda folder: write_users(INATURALIST, folder),
}
