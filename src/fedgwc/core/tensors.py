"""Tensors moved and stacked without needless copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def on(device: torch.device, numbers: NDArray[Any]) -> Tensor:
    """`numbers` as a tensor on `device`, without waiting until the device has done what was asked of it before."""
    return torch.from_numpy(numbers).to(device, non_blocking=True)


def stacked(vectors: Sequence[Tensor]) -> Tensor:
    """[M, D]; no copy of vectors [D] that are the rows of one tensor already, in their order."""
    whole = vectors[0]._base
    if whole is not None and whole.is_contiguous() and whole.shape == (len(vectors), len(vectors[0])):
        first, row = whole.data_ptr(), whole[0].nbytes
        if all(v._base is whole and v.data_ptr() == first + i * row for i, v in enumerate(vectors)):
            return whole
    return torch.stack(list(vectors))
