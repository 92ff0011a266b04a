"""The FedGWC authors' partition files for CIFAR-100.

They list each client's images.

`{"0": {"train": {"x": [file names], "y": [labels]}, "test": ...}, ..., "server_imgs": {"x", "y"}}`, as json or json.gz.
A file name alone does not identify an image (some occur twice, or in both splits): an image is (split, name, label).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids
from fedgwc.data.rows import Rows

LARGEST = 2**28  # bytes of json; the real files have 4 MiB


@dataclass(frozen=True)
class Partition:
    train: Rows
    test: Rows
    server: Ids  # test images the authors' server kept for itself; they are in clients' test sets too


def read(path: str | Path, names: Sequence[str], labels: Ids, n_train: int) -> Partition:
    """Read a partition file.

    `names` and `labels` [R] are those of CIFAR-100, whose first `n_train` rows are its train split.
    """
    if not names:
        raise InputError("the partition goes by file names, which only the python layout of CIFAR has; get that one")
    table = load_json(Path(path))
    if not isinstance(table, dict):
        raise InputError(f"{path} is not a partition file; it needs client numbers with train and test")
    splits = {"train": _index(names, labels, range(n_train)), "test": _index(names, labels, range(n_train, len(names)))}
    try:
        clients = sorted(table.keys() - {"server_imgs"}, key=int)
        server = _rows(table.get("server_imgs", {"x": [], "y": []}), splits["test"], "server_imgs", path)
        rows = {s: Rows.of([_rows(table[k][s], splits[s], f"client {k}, {s}", path) for k in clients]) for s in splits}
    except InputError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a partition file ({error!r}); it needs client numbers with train and test") from error
    for split, found in rows.items():
        if len(np.unique(found.flat)) != len(found.flat):
            raise InputError(f"{path} gives some {split} image to two clients; each image may be used once")
    return Partition(rows["train"], rows["test"], server)


def load_json(path: Path) -> Any:
    """Read a json or json.gz file that somebody else may have written."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as stream:
            text = stream.read(LARGEST + 1)
        content = json.loads(text) if len(text) <= LARGEST else None
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise InputError(f"cannot read the partition file {path} ({error}); give the path of a json or json.gz file") from error
    if content is None:
        raise InputError(f"{path} is not a partition file: it must be one json object of at most {LARGEST} bytes")
    return content


def _index(names: Sequence[str], labels: Ids, rows: range) -> dict[tuple[str, int], int]:
    return {(names[row], int(labels[row])): row for row in rows}


def _rows(images: dict[str, Any], index: dict[tuple[str, int], int], where: str, path: str | Path) -> Ids:
    keys = list(zip(images["x"], images["y"], strict=True))
    unknown = [key for key in keys if key not in index]
    if unknown:
        raise InputError(f"{path}, {where}: no image {unknown[0]} in this CIFAR-100 ({len(unknown)} such); is it the right set?")
    return np.array([index[key] for key in keys], np.int64)
