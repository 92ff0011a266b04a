"""Domain shifts: the same task seen through a noisy sensor, a blurred lens, a turned camera, or another label code."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor

from fedgwc.core.errors import InputError


def noisy(x: Tensor, sigma: float, seed: int, std: tuple[float, ...] = ()) -> Tensor:
    """x + N(0, sigma), fixed per sample; with `std` per channel (axis 1) sigma counts in those units, as after normalisation."""
    noise = np.random.default_rng(seed).standard_normal(tuple(x.shape), np.float32)
    unit = torch.tensor(std).view(-1, *(1,) * (x.ndim - 2)) if std else torch.ones(())
    return x + sigma * unit * torch.from_numpy(noise)


def blurred(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of `sigma` pixels over the last two axes."""

    def blur(a: NDArray[np.float32]) -> NDArray[np.float32]:
        side = max(a.shape[-2:])
        if sigma > side:  # all pixels are alike long before, and the filter grows with sigma
            raise InputError(f"blur must be at most {side}, the longer side of the images, got {sigma}")
        filtered: NDArray[np.float32] = ndimage.gaussian_filter(a, (*(0,) * (a.ndim - 2), sigma, sigma), mode="nearest")
        return filtered

    return _per_image(x, blur)


def rotated(x: Tensor, degrees: float) -> Tensor:
    """Turned counter-clockwise by `degrees` over the last two axes; multiples of 90 are exact."""
    if degrees % 90 == 0:
        return torch.rot90(x, int(degrees // 90) % 4, (-2, -1)).contiguous()
    return _per_image(x, lambda a: ndimage.rotate(a, degrees, axes=(-1, -2), reshape=False, order=1, mode="constant"))


def relabelled(y: Tensor, by: int, n_classes: int) -> Tensor:
    """A site that codes the labels differently: each label shifted by `by`, modulo the number of classes."""
    return (y + by % n_classes) % n_classes


def _per_image(x: Tensor, f: object) -> Tensor:
    if x.ndim < 3:
        raise InputError(f"blur and rotation need images [rows, ..., height, width], got samples of shape {tuple(x.shape[1:])}")
    a = x.numpy()
    shifted = f(a.astype(np.float32))  # type: ignore[operator]
    if x.dtype == torch.uint8:
        shifted = np.clip(np.rint(shifted), 0, 255)
    return torch.from_numpy(np.ascontiguousarray(shifted.astype(a.dtype)))
