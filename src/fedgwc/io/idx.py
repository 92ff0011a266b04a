"""The idx format of MNIST and EMNIST.

A header with the shape, then bytes; plain or gzipped.
"""

from __future__ import annotations

import gzip
import math
import zipfile
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from fedgwc.core.errors import InputError
from fedgwc.io.zips import BAD_ZIP, DEFLATE_AT_BEST, members, opened


def find(places: tuple[Path, ...], name: str, bundle: str = "") -> tuple[Path, str] | None:
    """Find `name` or `name.gz` in folders or in a zip.

    Returns (path, member of the zip file `bundle`, or "").
    """
    for place in places:
        for path in (place / name, place / f"{name}.gz", place / "gzip" / f"{name}.gz", place / "gzip" / name):
            if path.is_file():
                return path, ""
        if bundle and (place / bundle).is_file():
            inside = [n for n in _names(place / bundle) if n.rpartition("/")[2] in (name, f"{name}.gz")]
            if inside:
                return place / bundle, inside[0]
    return None


def _names(bundle: Path) -> list[str]:
    try:
        with zipfile.ZipFile(bundle) as archive:
            return list(members(bundle, archive))
    except BAD_ZIP as error:
        raise InputError(f"cannot read {bundle} ({error}); it is damaged: download it again") from error


def read(path: Path, ndim: int, member: str = "") -> NDArray[np.uint8]:
    """Read the array in `path`, which must have `ndim` axes.

    Nothing is allocated before the header agrees with the length.
    """
    try:
        if member:
            with zipfile.ZipFile(path) as archive:
                info = members(path, archive)[member]
                with opened(archive, info) as stream:
                    return _read(stream, info.file_size, ndim, f"{path}/{member}")
        with path.open("rb") as stream:
            return _read(stream, path.stat().st_size, ndim, str(path))
    except BAD_ZIP as error:
        raise InputError(f"cannot read {path} ({error}); it is damaged: download it again") from error


def _read(stream: BinaryIO, size: int, ndim: int, name: str) -> NDArray[np.uint8]:
    packed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    body = cast(BinaryIO, gzip.GzipFile(fileobj=stream)) if packed else stream
    header = body.read(4 + 4 * ndim)
    if len(header) < 4 + 4 * ndim or header[:4] != bytes([0, 0, 8, ndim]):
        raise InputError(f"{name} is not an idx file of bytes with {ndim} axes: it starts with {header[:4].hex()}")
    shape = tuple(int(n) for n in np.frombuffer(header, ">u4", offset=4))
    expected = math.prod(shape)
    if expected + len(header) > size * DEFLATE_AT_BEST if packed else expected + len(header) != size:
        raise InputError(f"{name} promises {expected} bytes of shape {shape} but has a length of {size}; download it again")
    out = np.empty(expected, np.uint8)
    got = fill(body, out.data)
    if got != expected or body.read(1):
        raise InputError(f"{name} promises {expected} bytes and holds {got if got < expected else 'more'}; download it again")
    return out.reshape(shape)


def fill(stream: BinaryIO, view: memoryview) -> int:
    got = 0
    while got < len(view) and (piece := stream.read(min(2**22, len(view) - got))):
        view[got : got + len(piece)] = piece
        got += len(piece)
    return got
