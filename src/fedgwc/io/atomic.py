"""Atomic writing of files."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a file completely or not at all.

    Write, fsync, rename, fsync the folder.

    It has the permissions `mode` from its first moment on; None: what is usual.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # `record` sweeps up what kills leave of these
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666 if mode is None else mode), "wb") as file:
            if mode is not None:  # whatever the umask took from it
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:  # a full disk, which Python reports without saying where
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Make a file's content, or a folder's names, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
