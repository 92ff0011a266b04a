"""Clients' own test sets: a seeded share of their samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids
from fedgwc.data.rows import Rows


def held_out(mine: Ids, share: float, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """Split one client's rows into (train, test).

    Both are in ascending order, with at least one sample on either side.
    """
    n_test = min(max(round(share * len(mine)), 1), len(mine) - 1)
    test = np.zeros(len(mine), bool)
    test[rng.choice(len(mine), n_test, replace=False)] = True
    return mine[~test], mine[test]


def split_clients(clients: Sequence[Ids], share: float, seed: int, streams: Sequence[int] | Ids) -> tuple[Rows, Rows]:
    """Split all clients' rows into train and test rows.

    Client i draws from stream (seed, streams[i]), independent of the other clients.
    """
    if not 0 < share < 1:
        raise InputError(f"test_share must be in (0, 1), got {share}; it is the share of a client's samples kept for testing")
    small = [i for i, mine in enumerate(clients) if len(mine) < 2]
    if small:
        raise InputError(f"client {small[0]} has fewer than 2 samples ({len(small)} such clients); raise min_images to 2 or more")
    halves = [held_out(m, share, np.random.default_rng([seed, int(s)])) for m, s in zip(clients, streams, strict=True)]
    return Rows.of([train for train, _ in halves]), Rows.of([test for _, test in halves])
