"""Checks of files that users name or send.

Only regular files are read: a device has no end, and a pipe makes one wait.
"""

from __future__ import annotations

from pathlib import Path

from fedgwc.core.errors import InputError


def regular_file(path: Path) -> Path:
    """Check that a path is no device or pipe.

    It may be missing or a folder: its reader reports that.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is a device or a pipe; give an ordinary file")
    return path
