"""Federations: shared tensors, and each client's rows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats, Ids, Split
from fedgwc.data.held_out import split_clients
from fedgwc.data.rows import Rows

MOST_CLASSES = 1_000_000  # they are counted for every client


class Samples(Protocol):
    """Samples for the engine: a tensor, or images on disk."""

    @property
    def shape(self) -> torch.Size: ...  # [R, ...]

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def ndim(self) -> int: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Tensor: ...

    def to(self, device: torch.device, /) -> Samples: ...


@dataclass(frozen=True)
class Federation:
    """Clients over shared data.

    Pixels may stay uint8: they are scaled to [0, 1] and normalised batch by batch.
    """

    x: Samples  # [R, ...] uint8 or floating point
    y: Tensor  # [R] int64
    train: Rows
    test: Rows
    n_classes: int
    groups: Ids | None = None  # [N] the group each client was built in, where that is known
    mean: tuple[float, ...] = ()  # per channel; empty: no normalisation
    std: tuple[float, ...] = ()
    augment: bool = False  # random crop with padding 4 and flip, on training batches
    name: str = "federation"
    notes: tuple[str, ...] = field(default=())  # what building it had to decide
    global_test: Ids | None = None  # rows no client owns, to score one model on everybody's task
    client_names: tuple[str, ...] = ()  # [N] what clients are called, where that is known
    validation: Rows | None = None  # of samples that are neither trained nor tested on; a client may have none
    newcomers: Federation | None = None  # clients whom training never sees, on the same x and y

    def __post_init__(self) -> None:
        for split, rows in self.splits.items():
            if len(rows) != len(self.train):
                raise InputError(f"train has {len(self.train)} clients and {split} has {len(rows)}; they must be the same")
        if self.client_names and len(self.client_names) != len(self.train):
            raise InputError(f"{len(self.client_names)} names came for {len(self.train)} clients; give one for each, or none")
        if len(self.x) != len(self.y):
            raise InputError(f"x has {len(self.x)} rows and y has {len(self.y)}; each sample needs one label")
        if 0 in self.x.shape[1:]:
            raise InputError(f"x has samples of shape {self.shape}, which hold nothing; give each at least one number")
        if self.n_classes > MOST_CLASSES:
            raise InputError(f"a federation has at most {MOST_CLASSES:,} classes, got {self.n_classes:,}; number them from 0")
        if not len(self.train):
            raise InputError("the federation has no client; give at least one")
        for split, rows in self.splits.items():
            empty = np.flatnonzero(rows.sizes == 0)
            if len(empty) and split != "validation":
                raise InputError(f"client {empty[0]} has no {split} sample ({len(empty)} such clients); drop or refill them")
            if len(rows.flat) and (rows.flat.min() < 0 or rows.flat.max() >= len(self.y)):
                raise InputError(f"{split} rows must be in 0..{len(self.y) - 1}, got {rows.flat.min()}..{rows.flat.max()}")
        if len(self.y) and (int(self.y.min()) < 0 or int(self.y.max()) >= self.n_classes):
            raise InputError(f"labels must be in 0..{self.n_classes - 1}, got {int(self.y.min())}..{int(self.y.max())}")

    @property
    def n_clients(self) -> int:
        return len(self.train)

    @property
    def known_groups(self) -> Ids:
        """Each client's group [N], 0 where none are known."""
        return np.zeros(self.n_clients, np.int64) if self.groups is None else self.groups

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one sample."""
        return tuple(self.x.shape[1:])

    @property
    def splits(self) -> dict[Split, Rows]:
        """Return the rows of each split that is there."""
        held_out: dict[Split, Rows] = {} if self.validation is None else {"validation": self.validation}
        return {"train": self.train, "test": self.test, **held_out}

    def rows(self, split: Split) -> Rows:
        """Return each client's rows of a split."""
        if split not in self.splits:
            raise InputError(
                f"the federation {self.name} has no {split} samples; hold some out of training: data.validation=0.2 in a "
                "recipe, or hold_out(federation, Splits(), seed) of fedgwc.data"
            )
        return self.splits[split]

    def everyone(self, split: Split) -> Rows:
        """Return the rows of a split of all clients, newcomers last."""
        mine = self.rows(split)
        return mine if self.newcomers is None else mine.followed_by(self.newcomers.rows(split))

    def of_clients(self, clients: Ids) -> Federation:
        """Return the federation of some clients, in their order."""
        rows = {split: its.of_clients(clients) for split, its in self.splits.items()}
        groups = None if self.groups is None else self.groups[clients]
        names = tuple(self.client_names[k] for k in clients) if self.client_names else ()
        split_rows = {"train": rows["train"], "test": rows["test"], "validation": rows.get("validation")}
        return replace(self, **split_rows, groups=groups, client_names=names, newcomers=None)  # type: ignore[arg-type]

    def class_counts(self, split: Split = "train") -> Floats:
        """Count each client's samples of each class: [N, C]."""
        rows = self.rows(split)
        cell = rows.owner * self.n_classes + self.y.numpy()[rows.flat]
        return np.bincount(cell, minlength=self.n_clients * self.n_classes).reshape(self.n_clients, -1).astype(np.float64)


def from_arrays(
    x: NDArray[np.generic] | Tensor,
    y: NDArray[np.generic] | Tensor,
    client: NDArray[np.generic] | Sequence[object],
    *,
    test_share: float = 0.2,
    seed: int = 0,
    is_test: NDArray[np.bool_] | None = None,
    n_classes: int | None = None,
    groups: Ids | None = None,
) -> Federation:
    """Return a federation from arrays and each row's client id.

    Ids are any that can be sorted; they name clients and order their numbers. Rows marked `is_test` are test data; without
    that column a seeded share of each client's rows is held out.
    """
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    given, y = y, y.to(torch.int64)
    if not torch.equal(given, y.to(given.dtype)):
        raise InputError(f"y must hold whole numbers, one class per sample, got {given[given != y][0].item()}")
    ids, owner = np.unique(np.asarray(client), return_inverse=True)
    if not len(x) == len(y) == len(owner):
        raise InputError(f"x, y and client must have one entry per sample, got {len(x)}, {len(y)} and {len(owner)}")
    x = x if x.dtype == torch.uint8 else x.to(torch.float32)
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise InputError("x holds NaN or infinite values; clean the data first")
    mine = [np.flatnonzero(owner == k) for k in range(len(ids))]
    if is_test is None:
        small = [k for k, rows in enumerate(mine) if len(rows) < 2]
        if small:
            k = small[0]
            raise InputError(f"client {ids[k]!r} has {len(mine[k])} sample; it needs at least 2, one to train and one to test")
        train, test = split_clients(mine, test_share, seed, range(len(ids)))
    else:
        train, test = (Rows.of([rows[is_test[rows] == tests] for rows in mine]) for tests in (False, True))
    classes = int(y.max()) + 1 if n_classes is None else n_classes
    occurring = len(torch.unique(y))
    notes = () if classes <= 2 * occurring else (f"labels are below {classes:,}, and only {occurring:,} of these classes occur",)
    called = tuple(map(str, ids.tolist()))
    return Federation(x, y, train, test, classes, groups, name="arrays", notes=notes, client_names=called)
