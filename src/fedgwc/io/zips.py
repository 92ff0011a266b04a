"""Safe reading of zip files.

Members are read where they are: nothing is written to disk.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, cast

DEFLATE_AT_BEST = 1032  # bytes out per byte in: deflated data cannot hold more than this times its own size
SMALL = 1024  # bytes that a member may have whatever its packed length
# What reading one can raise; a password and an unknown kind of packing are RuntimeErrors.
BAD_ZIP = (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError)


def members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """List a zip file's members by name.

    None may promise more than its packed bytes can make, and no packed bytes may be used twice.
    """
    found = {info.filename: info for info in archive.infolist()}
    for info in found.values():
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile(f"{info.filename!r} is packed in an unusual way")
        if info.file_size > DEFLATE_AT_BEST * info.compress_size + SMALL:
            raise zipfile.BadZipFile(f"{info.filename!r} promises {info.file_size} bytes, more than it can hold")
    if sum(info.compress_size for info in found.values()) > path.stat().st_size:
        raise zipfile.BadZipFile("its members are longer than the file")
    return found


def opened(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> BinaryIO:
    return cast(BinaryIO, archive.open(info))
