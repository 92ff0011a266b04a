"""Copies from a card to the host without needless waiting."""

from __future__ import annotations

import torch
from torch import Tensor


class Reading:
    """A tensor on its way to the host.

    Later work of the card does not delay its arrival.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        if not tensor.is_cuda:
            self._copy = tensor
            return
        self._copy = torch.empty_like(tensor, device="cpu", pin_memory=True)
        self._copy.copy_(tensor, non_blocking=True)
        self._arrived = torch.cuda.Event()
        self._arrived.record()

    def wait(self) -> Tensor:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._copy
