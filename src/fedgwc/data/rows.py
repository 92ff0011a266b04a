"""Clients' rows of shared tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgwc.core.types import Ids


@dataclass(frozen=True)
class Rows:
    """Row numbers per client, concatenated.

    Client k owns `flat[offsets[k]:offsets[k + 1]]`.
    """

    flat: Ids  # [sum of sizes]
    offsets: Ids  # [N + 1]

    @classmethod
    def of(cls, lists: Sequence[NDArray[np.integer]]) -> Rows:
        sizes = [len(rows) for rows in lists]
        flat = np.concatenate([np.asarray(rows, np.int64) for rows in lists]) if lists else np.empty(0, np.int64)
        return cls(flat, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> Ids:
        return self.flat[self.offsets[client] : self.offsets[client + 1]]

    @property
    def sizes(self) -> Ids:
        return np.diff(self.offsets)

    @property
    def owner(self) -> Ids:
        """Return the client of each entry, [len(flat)]."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def of_clients(self, clients: Ids) -> Rows:
        """Select some clients' rows, in their order."""
        return Rows.of([self[k] for k in clients])

    def where(self, kept: NDArray[np.bool_]) -> Rows:
        """Keep some entries of `flat`."""
        counts = np.bincount(self.owner[kept], minlength=len(self))
        return Rows(self.flat[kept], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def followed_by(self, other: Rows) -> Rows:
        """Return the clients of both, those of `other` last."""
        return Rows(np.concatenate([self.flat, other.flat]), np.concatenate([self.offsets, other.offsets[1:] + self.offsets[-1]]))
