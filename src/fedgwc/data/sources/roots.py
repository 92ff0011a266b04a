"""Folders of data sets.

The `root` setting, else the variable FEDGWC_DATA, else ~/.cache/fedgwc.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fedgwc.core.errors import NotHere

Root = str | Path | None
VARIABLE = "FEDGWC_DATA"


def data_root(root: Root = None) -> Path:
    return Path(root or os.environ.get(VARIABLE) or "~/.cache/fedgwc").expanduser()


def candidate_folders(name: str, root: Root = None) -> tuple[Path, ...]:
    """List folders that may hold the data set `name`.

    Its own under the root, or the root itself.
    """
    base = data_root(root)
    return base / name, base


def not_found(name: str, wanted: Sequence[str], root: Root = None) -> NotHere:
    looked = " and ".join(str(place) for place in candidate_folders(name, root))
    return NotHere(
        f"no {name} data: looked in {looked} for {' or '.join(wanted)}; run `fedgwc data prepare {name}`, "
        f"or set data.root (or the variable {VARIABLE}) to the folder that holds them"
    )
