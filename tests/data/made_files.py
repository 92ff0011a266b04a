"""Tiny files in the formats of the real data sets."""

from __future__ import annotations

import gzip
import pickle
import tarfile
from pathlib import Path

import numpy as np

COUNTS = (10, 4)  # train and test images of a made CIFAR


def cifar_batches(n_classes: int, train_files: int, label_key: bytes) -> list[dict[bytes, object]]:
    """Batches of the python layout, the test batch last."""
    rng = np.random.default_rng(0)
    sizes = [COUNTS[0] // train_files] * train_files + [COUNTS[1]]
    batches: list[dict[bytes, object]] = []
    for b, n in enumerate(sizes):
        batches.append(
            {
                b"data": rng.integers(0, 256, (n, 3072)).astype(np.uint8),
                label_key: [int(i) % n_classes for i in range(n)],
                # one name for two images: only the label tells them apart
                b"filenames": [b"same.png" if i < 2 else f"b{b}_{i}.png".encode() for i in range(n)],
            }
        )
    return batches


def write_cifar100(folder: Path, protocol: int) -> Path:
    folder.mkdir(parents=True)
    for name, batch in zip(("train", "test"), cifar_batches(100, 1, b"fine_labels"), strict=True):
        (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    return folder


def packed(folder: Path, archive: Path, extra: tarfile.TarInfo | None = None) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        if extra:
            tar.addfile(extra)
        tar.add(folder, folder.name)
    return archive


def idx_bytes(array: np.ndarray, shape: tuple[int, ...] | None = None) -> bytes:
    """`shape` is what the header claims, by default the truth."""
    claimed = array.shape if shape is None else shape
    return bytes([0, 0, 8, len(claimed)]) + np.array(claimed, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def write_idx(path: Path, array: np.ndarray) -> None:
    raw = idx_bytes(array)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
