"""Safe reading of npz files.

Plain arrays only, and nothing is allocated before header and length agree.
"""

from __future__ import annotations

import io
import math
import os
import re
import tokenize
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedgwc.core.errors import InputError
from fedgwc.io.files import regular_file
from fedgwc.io.idx import fill
from fedgwc.io.zips import BAD_ZIP, members, opened

PLAIN = re.compile(r"[<>|=](b1|[iu][1248]|f[248]|[SU]\d+)")  # numbers and text: no objects, no records
UNREADABLE = (
    *BAD_ZIP,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
    SyntaxError,  # numpy writes an array's header as Python
    tokenize.TokenError,
)


def read_npz(path: Path, names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read the arrays of an npz file by name.

    With `names`, only those of them that the file has.
    """
    regular_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            found = {name.removesuffix(".npy"): info for name, info in members(path, archive).items()}
            wanted = found if names is None else [name for name in names if name in found]
            unpacked, most = sum(found[name].file_size for name in wanted), memory() / 2
            if unpacked > most:
                raise ValueError(f"it unpacks to {unpacked / 2**30:.1f} GiB, more than half of this machine's memory")
            return {name: _member(archive, found[name]) for name in wanted}
    except UNREADABLE as error:
        raise InputError(
            f"{path} cannot be read ({error}); it must be a whole .npz file of plain arrays, as np.savez writes it"
        ) from None


def memory() -> int:
    """Return this machine's memory in bytes.

    The system may end a process that asks for more, instead of refusing.
    """
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with opened(archive, info) as stream:
        shape, fortran, dtype = _header(stream)
        length = math.prod(shape) * dtype.itemsize
        if length != info.file_size - stream.tell():
            came = info.file_size - stream.tell()
            raise ValueError(f"{info.filename} promises {length} bytes of shape {shape} and holds {came}")
        raw = np.empty(length, np.uint8)
        if fill(stream, raw.data) != length or stream.read(1):  # the last read checks the sum
            raise ValueError(f"{info.filename} is cut off")
    array: NDArray[Any] = raw.view(dtype) if length else np.empty(0, dtype)
    array = array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def _header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array of format {version[0]}.{version[1]}, which only records need")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if not PLAIN.fullmatch(dtype.str) or any(n < 0 for n in shape):
        raise ValueError(f"an array of shape {shape} and type {dtype}; only numbers and text are read")
    return shape, bool(fortran), dtype


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Pack arrays, compressed, in memory."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()
