"""Moving and stacking tensors without needless copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(device: torch.device, numbers: NDArray[Any]) -> Tensor:
    """Send an array to a device as a tensor.

    It does not wait for the device's earlier work.
    """
    return torch.from_numpy(numbers).to(device, non_blocking=True)


def stack_rows(vectors: Sequence[Tensor]) -> Tensor:
    """Stack vectors [D] as [M, D].

    Vectors that are one tensor's rows, in order, are not copied.
    """
    whole = vectors[0]._base
    if whole is not None and whole.is_contiguous() and whole.shape == (len(vectors), len(vectors[0])):
        first, row = whole.data_ptr(), whole[0].nbytes
        if all(v._base is whole and v.data_ptr() == first + i * row for i, v in enumerate(vectors)):
            return whole
    return torch.stack(list(vectors))
