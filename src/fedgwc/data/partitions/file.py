"""Clients listed in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from fedgwc.core.errors import InputError, NotHere
from fedgwc.core.types import Ids
from fedgwc.data.pool import Pool
from fedgwc.data.sources import authors_partition

FilePath = Annotated[str, "json or json.gz: a list of row numbers for each client, or a partition of FedGWC's authors"]


def from_file(pool: Pool, rows: Ids, n_clients: int, *, path: FilePath) -> list[Ids]:
    """Deal the first clients that a file lists.

    `[[0, 7, 9], [2, 5, 8], ...]`, or a table of such lists by client. Rows count from 0 in the order of the data set, training
    samples before test samples where these come in files of their own.
    """
    listed = _read(Path(path).expanduser(), pool)
    if len(listed) < n_clients:
        raise InputError(
            f"{path} lists {len(listed)} clients, and {n_clients} were asked for; set clients to {len(listed)} at most"
        )
    position = np.full(len(pool.y), -1)
    position[rows] = np.arange(len(rows))
    dealt = []
    for client, mine in enumerate(listed[:n_clients]):
        if len(mine) and not 0 <= mine.min() <= mine.max() < len(position):
            odd = mine[(mine < 0) | (mine >= len(position))][0]
            raise InputError(f"{path}, client {client}: there is no row {odd}; {pool.name} has the rows 0..{len(position) - 1}")
        if (taken := position[mine] < 0).any():
            raise InputError(f"{path}, client {client}: row {mine[taken][0]} belongs to a group that was dealt out before")
        dealt.append(position[mine])
    return dealt


def _read(path: Path, pool: Pool) -> list[Ids]:
    """Read the rows of each client."""
    if not path.is_file():
        raise NotHere(f"there is no partition file {path}; give the path of a json or json.gz file")
    content = authors_partition.load_json(path)
    lists = list(content.values()) if isinstance(content, Mapping) else content
    if isinstance(content, Mapping) and any(isinstance(each, Mapping) for each in lists):
        authors = authors_partition.read(path, pool.names, pool.y.numpy(), len(pool.train))
        return [np.concatenate([authors.train[k], authors.test[k]]) for k in range(len(authors.train))]
    if not isinstance(lists, list) or not all(map(_is_rows, lists)):
        raise InputError(f"{path} must hold a list of row numbers for each client, such as [[0, 7], [2, 5]]")
    return [np.array(each, np.int64) for each in lists]


def _is_rows(each: Any) -> bool:
    return isinstance(each, list) and all(type(row) is int and abs(row) < 2**62 for row in each)
