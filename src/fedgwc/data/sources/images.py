"""Folders of photographs as tensors on disk.

Background threads decode an image when it is first asked for, and its pixels are kept.
"""

from __future__ import annotations

import copy
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids
from fedgwc.data.sources.pixel_store import PixelStore

SUFFIXES = (".jpg", ".jpeg", ".png")
MOST_PIXELS = 10**8  # of one photograph


@dataclass(frozen=True)
class _Decoders:
    """The decoding threads and their queue.

    A fork inherits all of it but the threads, so it makes its own.
    """

    pool: ThreadPoolExecutor
    pending: dict[int, Future[None]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    pid: int = field(default_factory=os.getpid)


class ImageCache:
    """Images [R, 3, size, size] uint8 on disk, indexed like a tensor.

    `cache[rows]` waits for images that are not decoded yet.

    Row r is the image `ids[r]`, a file `<id>.jpg` anywhere below `folder`. The decoded pixels live in `where`, under a
    name made of the ids and the size, so other ids or sizes never meet them.
    """

    dtype = torch.uint8
    ndim = 4

    def __init__(self, folder: Path, ids: Sequence[str], size: int, where: Path, workers: int = 0) -> None:
        if size < 1:
            raise InputError(f"size must be at least 1 pixel, got {size}")
        self.folder, self.ids, self.size, self.device = folder, ids, size, torch.device("cpu")
        digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]
        self._store = PixelStore(where / f"{digest}-{size}", len(ids), (3, size, size))
        self._workers = workers or min(8, os.cpu_count() or 1)
        self._own = self._new_decoders()
        self._paths: dict[str, Path] = {}

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.ids), 3, self.size, self.size))

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device | str) -> ImageCache:
        """Return the same images with batches on `device`.

        All of them stay on disk.
        """
        other = copy.copy(self)
        other.device = torch.device(device)
        return other

    def __getitem__(self, rows: ArrayLike | Tensor) -> Tensor:
        at = torch.as_tensor(rows).cpu()
        flat = self._rows(at)
        for future in self.prefetch(flat):
            future.result()
        pixels = torch.from_numpy(self._store.read(flat))
        return pixels.view(*at.shape, *self.shape[1:]).to(self.device, non_blocking=True)

    def prefetch(self, rows: ArrayLike | Tensor) -> list[Future[None]]:
        """Start decoding what is missing of `rows`, without waiting for it."""
        missing = [row for row in np.unique(self._rows(torch.as_tensor(rows).cpu())).tolist() if not self._store.has(row)]
        if missing:
            self._find()
        own = self._decoders()
        with own.lock:
            for row in missing:
                if row not in own.pending:
                    own.pending[row] = own.pool.submit(self._decode, row)
            return [own.pending[row] for row in missing]

    def absent(self, rows: Iterable[int]) -> list[str]:
        """Return ids of `rows` neither decoded nor in the folder."""
        missing = [row for row in rows if not self._store.marked(row)]
        if missing:
            self._find()
        return [self.ids[row] for row in missing if self.ids[row] not in self._paths]

    def fill(self, rows: Ids, progress: Callable[[int, int], None] | None = None) -> None:
        """Decode all of `rows` now."""
        for start in range(0, len(rows), 256):
            for future in self.prefetch(rows[start : start + 256]):
                future.result()
            if progress:
                progress(min(start + 256, len(rows)), len(rows))

    def _rows(self, at: Tensor) -> Ids:
        flat: Ids = at.numpy().astype(np.int64).ravel()
        if len(flat) and (flat.min() < 0 or flat.max() >= len(self)):
            raise IndexError(f"rows must be in 0..{len(self) - 1}, got {flat.min()}..{flat.max()}")
        return flat

    def _new_decoders(self) -> _Decoders:
        return _Decoders(ThreadPoolExecutor(self._workers, "fedgwc-decode"))

    def _decoders(self) -> _Decoders:
        if self._own.pid != os.getpid():
            self._own = self._new_decoders()
        return self._own

    def _decode(self, row: int) -> None:
        try:
            name = self.ids[row]
            if name not in self._paths:
                raise InputError(f"there is no image {name}.jpg in {self.folder} or below; add it and run again")
            self._store.write(row, decoded(self._paths[name], self.size))
        finally:
            with self._own.lock:
                self._own.pending.pop(row, None)

    def _find(self) -> None:
        """Find each image: flat, or in the sources' sub-folders."""
        with self._decoders().lock:
            if self._paths:
                return
            wanted, found = set(self.ids), dict[str, Path]()
            for folder, _, files in os.walk(self.folder):
                for file in files:
                    stem, suffix = os.path.splitext(file)
                    if suffix.lower() in SUFFIXES and stem in wanted:
                        found[stem] = Path(folder, file)
            self._paths.update(found)  # all at once: a fork in the middle of the walk must not take a part for the whole


def decoded(path: Path, size: int) -> NDArray[np.uint8]:
    """Decode an image to [3, size, size].

    The shorter side is scaled to `size`, the centre cut out.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("photographs need Pillow: install fedgwc with its extra `images`") from error
    try:
        with Image.open(path) as image:
            image.draft("RGB", (size, size))  # a JPEG many times too large is decoded at a fraction of its size
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise ValueError(f"it claims {width} x {height} pixels")
            side = min(width, height)
            left, top = (width - side) / 2, (height - side) / 2
            box = (left, top, left + side, top + side)
            square = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box=box)
        return np.ascontiguousarray(np.asarray(square).transpose(2, 0, 1))
    except (OSError, SyntaxError, ValueError, MemoryError, Image.DecompressionBombError) as error:
        raise InputError(f"cannot decode {path} ({error}); replace the file and run again") from error
