"""Files that somebody names or sends: only ordinary ones are read, because a device has no end and a pipe makes one wait."""

from __future__ import annotations

from pathlib import Path

from fedgwc.core.errors import InputError


def ordinary(path: Path) -> Path:
    """`path`, which may be missing or a folder: its reader finds out at once."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is a device or a pipe; give an ordinary file")
    return path
