"""Merging several federations, so that one engine serves several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.data.federation import Federation
from fedgwc.data.rows import Rows

KIND = ("samples of shape", "pixels of type", "numbers of classes", "means", "deviations", "augmentation", "splits")


def merge(federations: Sequence[Federation]) -> Federation:
    """Merge the clients of several federations, numbered in their order."""
    first = federations[0]
    for other in federations[1:]:
        for name, a, b in zip(KIND, _kind(first), _kind(other), strict=True):
            if a != b:
                raise InputError(f"only federations of one kind run together, got {name} {a} and {b}; run these one by one")
    data: list[tuple[Tensor, Tensor]] = []
    source = []  # which of `data` a federation uses
    for f in federations:
        if not isinstance(f.x, Tensor):
            raise InputError(f"{f.name} reads its images from disk as it goes; such runs cannot be run together")
        same = (i for i, (x, y) in enumerate(data) if f.x.shape == x.shape and torch.equal(f.x, x) and torch.equal(f.y, y))
        source.append(next(same, len(data)))
        if source[-1] == len(data):
            data.append((f.x, f.y))
    starts = np.cumsum([0] + [len(x) for x, _ in data])[source]
    x, y = (torch.cat([d[i] for d in data]) if len(data) > 1 else data[0][i] for i in (0, 1))
    shared = replace(first, x=x, y=y, groups=None, notes=(), global_test=None, client_names=(), newcomers=None)
    new = [(f.newcomers, start) for f, start in zip(federations, starts, strict=True) if f.newcomers is not None]
    joined = _joined(shared, list(zip(federations, starts, strict=True)))
    return replace(joined, newcomers=_joined(shared, new)) if new else joined


def _kind(f: Federation) -> tuple[object, ...]:
    return (f.shape, f.x.dtype, f.n_classes, f.mean, f.std, f.augment, tuple(f.splits))


def _joined(shared: Federation, parts: Sequence[tuple[Federation, int]]) -> Federation:
    """Return `shared` with the clients of all parts, whose rows begin at `start`."""
    rows = {split: _concatenate([(f.rows(split), start) for f, start in parts]) for split in shared.splits}
    return replace(shared, train=rows["train"], test=rows["test"], validation=rows.get("validation"))


def _concatenate(parts: Sequence[tuple[Rows, int]]) -> Rows:
    return Rows.of([rows[k] + start for rows, start in parts for k in range(len(rows))])
