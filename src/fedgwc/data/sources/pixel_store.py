"""Decoded images on disk: one mapped file and a mark per image.

A mark is the image's CRC-32, written after its pixels and checked when a process first reads them: whatever a kill, a
full disk or a power cut leaves behind, an image is either whole or decoded again. The file has holes where nothing
is decoded yet, so it takes only the disk it uses.
"""

from __future__ import annotations

import mmap
import os
import weakref
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedgwc.core.types import Ids

DROP_AFTER = 2**28  # bytes read before mapped pages are handed back: they are the page cache's to keep, not ours


class PixelStore:
    def __init__(self, path: Path, rows: int, shape: tuple[int, ...]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.shape, self.row_bytes = (rows, *shape), int(np.prod(shape))
        self._pixels_fd = _opened(path.with_suffix(".pixels"), rows * self.row_bytes)
        self._marks_fd = _opened(path.with_suffix(".marks"), rows * 4)
        weakref.finalize(self, os.close, self._pixels_fd)
        weakref.finalize(self, os.close, self._marks_fd)
        self._map = mmap.mmap(self._pixels_fd, rows * self.row_bytes, access=mmap.ACCESS_READ)
        self._pixels = np.frombuffer(self._map, np.uint8).reshape(self.shape)
        self._marks = _marks(self._marks_fd, rows).copy()
        self._trusted = np.zeros(rows, bool)  # marks that this process has checked or written
        self._since_drop = 0

    def marked(self, row: int) -> bool:
        """Tell whether an image is marked as present.

        `has` makes sure, at the price of reading it.
        """
        if not self._marks[row] and (mark := _marks(self._marks_fd, 1, row)[0]):  # another process may have written it since
            self._marks[row] = mark
        return bool(self._marks[row])

    def has(self, row: int) -> bool:
        if not self._trusted[row] and self.marked(row):
            self._trusted[row] = self._marks[row] == _mark(self._pixels[row].tobytes())
        return bool(self._trusted[row])

    def write(self, row: int, pixels: NDArray[np.uint8]) -> None:
        raw = pixels.tobytes()
        # Not through the mapping: there a full disk kills the process, here it raises.
        _write(self._pixels_fd, raw, row * self.row_bytes)
        self._marks[row] = _mark(raw)
        _write(self._marks_fd, self._marks[row : row + 1].tobytes(), row * 4)
        self._trusted[row] = True

    def read(self, rows: Ids) -> NDArray[np.uint8]:
        """Copy the images of some rows: [len(rows), ...]."""
        out: NDArray[np.uint8] = self._pixels[rows]
        self._since_drop += out.nbytes
        if self._since_drop > DROP_AFTER and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
            self._since_drop = 0
        return out


def _mark(raw: bytes) -> int:
    return zlib.crc32(raw) or 1  # 0 means: nothing here yet


def _marks(fd: int, rows: int, first: int = 0) -> NDArray[np.uint32]:
    return np.frombuffer(os.pread(fd, rows * 4, first * 4), "<u4")


def _opened(path: Path, size: int) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if os.fstat(fd).st_size != size:
        os.ftruncate(fd, size)
    return fd


def _write(fd: int, raw: bytes, offset: int) -> None:
    view = memoryview(raw)
    while len(view):
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done
