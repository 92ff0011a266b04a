"""The federation's samples on the training device.

As the model sees them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedgwc.core.work import LocalTraining
from fedgwc.data.augment import PADDING, crop_and_flip
from fedgwc.data.federation import Federation
from fedgwc.engines.kernels import stacked_conv
from fedgwc.training.minibatches import Bounds, Minibatches, minibatches


class Samples:
    """All samples, x and y; a client is a range of rows."""

    def __init__(self, federation: Federation, device: torch.device, dtype: torch.dtype) -> None:
        self.augment, self.dtype = federation.augment, dtype
        self.x, self.y = federation.x.to(device), federation.y.to(device)
        self.flat = torch.from_numpy(federation.train.flat).to(device)
        self.offsets = torch.from_numpy(federation.train.offsets).to(device)
        self.sizes = torch.from_numpy(federation.train.sizes).to(device)
        self.shift, self.scale = _normalisation(federation, device, dtype)
        # On a GPU the whole way from stored pixels to a batch is one kernel.
        images = isinstance(self.x, Tensor) and self.x.ndim == 4
        self._one_pass = images and stacked_conv.available(device, dtype)
        self.plain = not self.shift.any() and bool((self.scale == 1).all())
        self.even = bool((self.sizes == self.sizes[0]).all())

    def cohort(self, local: LocalTraining, ids: Tensor, keys: Tensor, bounds: Bounds) -> tuple[Tensor, Minibatches]:
        """Return every step's row numbers [n, S, B] and minibatches."""
        # Sizes that do not depend on `ids` are constants to a recorder, and so is what follows from them.
        sizes = self.sizes[:1].expand(len(ids)) if self.even else self.sizes[ids]
        batches = minibatches(local, sizes, keys, bounds)
        return _rows(self.flat, self.offsets.index_select(0, ids).view(-1, 1, 1) + batches.places), batches

    def labels(self, rows: Tensor) -> Tensor:
        return _rows(self.y, rows)

    def inputs(self, rows: Tensor, keys: Tensor | None = None, step: int = 0) -> Tensor:
        """Return x at `rows`, scaled and normalised.

        And augmented where `keys` [n] name the clients of rows [n, B].
        """
        if rows.ndim == 2 and self._one_pass:
            from fedgwc.engines.kernels.triton_images import prepare

            assert isinstance(self.x, Tensor)  # noqa: S101 (for the type checker)
            augment = self.augment and keys is not None
            return prepare(self.x, rows, keys, step, self.shift.flatten(), self.scale.flatten(), PADDING, augment)
        x = _rows(self.x, rows) if isinstance(self.x, Tensor) else self.x[rows]
        x = x if x.dtype == self.dtype else x.to(self.dtype)  # a recorder would keep the conversion
        if not self.plain:
            x = (x - self.shift) / self.scale
        if keys is not None and self.augment:
            x = crop_and_flip(x, keys, step, (-self.shift / self.scale).flatten())
        return x

    def evaluation_batch(self) -> int:
        """Return the number of samples to score at once.

        Enough for a busy device, and activations that fit.
        """
        return max(32, (2**23 if self.y.is_cuda else 2**20) // math.prod(self.x.shape[1:]))


def _rows(t: Tensor, at: Tensor) -> Tensor:
    """Select rows of a tensor in a third of the time.

    Of t[at]: an index may be anything, a selection copies whole rows.
    """
    return t.index_select(0, at.reshape(-1)).view(*map(int, at.shape), *t.shape[1:])  # int: under a recorder they are tensors


def _normalisation(f: Federation, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the mean and deviation per channel, in the units of the stored pixels."""
    unit = 255.0 if f.x.dtype == torch.uint8 else 1.0
    images = f.x.ndim > 2
    n_channels = int(f.x.shape[1]) if images else 1
    shape = (n_channels, *(1,) * (f.x.ndim - 2)) if images else (1,)
    mean = torch.tensor(f.mean or (0.0,) * n_channels, dtype=dtype, device=device)
    std = torch.tensor(f.std or (1.0,) * n_channels, dtype=dtype, device=device)
    return unit * mean.view(shape), unit * std.view(shape)
