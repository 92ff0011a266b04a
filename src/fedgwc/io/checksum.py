"""Checksums written as `md5:...` or `sha256:...`.

Older sources publish md5; sha256 is the better choice.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedgwc.core.errors import InputError

METHODS = ("md5", "sha256")


def checksum(path: Path, method: str) -> str:
    if method not in METHODS:
        raise InputError(f"unknown checksum method {method!r}; write md5:... or sha256:...")
    with path.open("rb") as stream:
        # Against accidents, not against forgers: an md5 only says that this is the file its publisher described.
        digest = hashlib.file_digest(stream, lambda: hashlib.new(method, usedforsecurity=False))
    return f"{method}:{digest.hexdigest()}"


def check(path: Path, expected: str) -> None:
    """Raise unless a file has the expected checksum.

    An empty one means that none is published.
    """
    if not expected:
        return
    came = checksum(path, expected.partition(":")[0])
    if came != expected.lower():
        raise InputError(f"{path} has the checksum {came}, expected {expected}; it is damaged or another file: download it again")
