"""A data set before it is dealt out to clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from fedgwc.core.types import Ids


@dataclass(frozen=True)
class Pool:
    """Samples of a data set before they are dealt out."""

    x: Tensor  # [R, ...]
    y: Tensor  # [R]
    train: Ids  # rows that may be trained on
    test: Ids
    n_classes: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    name: str = "pool"
    owners: NDArray[Any] | None = None  # [R] whose each sample is (its writer, its user), where that is known
    names: tuple[str, ...] = ()  # [R] file names, where samples have them
