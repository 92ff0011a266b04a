"""Shifts of a group's samples: blur, rotation, noise, other labels."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.settings import check_settable
from fedgwc.core.tables import Table

MOST_NOISE = 1_000_000  # deviations: of the sample nothing is left, and the sum is still a 32-bit number


@dataclass(frozen=True)
class Samples:
    """All samples of one group's clients."""

    x: Tensor  # [r, ...] uint8 or floating point
    y: Tensor  # [r]
    n_classes: int
    std: tuple[float, ...] = ()  # per channel (axis 1), what samples are divided by later; empty: nothing
    seed: int = 0  # the federation's
    group: int = 0  # the group's number


Shift = Callable[..., Samples]


def blur(samples: Samples, value: Annotated[float, "Gaussian blur, sigma in pixels"]) -> Samples:
    """Blur images."""
    if not 0 <= value < math.inf:
        raise InputError(f"blur must be >= 0 and finite, got {value}; 0 turns it off")
    side = max(samples.x.shape[-2:])
    if value > side:  # all pixels are alike long before, and the filter grows with sigma
        raise InputError(f"blur must be at most {side}, the longer side of the images, got {value}")

    def blurred(a: NDArray[np.float32]) -> NDArray[np.float32]:
        filtered: NDArray[np.float32] = ndimage.gaussian_filter(a, (*(0,) * (a.ndim - 2), value, value), mode="nearest")
        return filtered

    return replace(samples, x=_per_image(samples.x, blurred))


def rotate(samples: Samples, value: Annotated[float, "degrees, counter-clockwise"]) -> Samples:
    """Turn images; multiples of 90 degrees are exact."""
    if not math.isfinite(value):
        raise InputError(f"rotate must be finite, got {value}; 0 turns it off")
    if value % 90 == 0:
        return replace(samples, x=torch.rot90(samples.x, int(value // 90) % 4, (-2, -1)).contiguous())

    def rotated(a: NDArray[np.float32]) -> NDArray[np.float32]:
        turned: NDArray[np.float32] = ndimage.rotate(a, value, axes=(-1, -2), reshape=False, order=1, mode="constant")
        return turned

    return replace(samples, x=_per_image(samples.x, rotated))


def relabel(samples: Samples, value: Annotated[int, "added to each label, modulo the number of classes"]) -> Samples:
    """Shift all labels by the same number."""
    return replace(samples, y=(samples.y + value % samples.n_classes) % samples.n_classes)


def permute(
    samples: Samples, value: Annotated[int, "labels in another order; groups of the same number share it, 0 is off"]
) -> Samples:
    """Exchange labels by a random permutation."""
    if value < 0:
        raise InputError(f"permute must be >= 0, got {value}; 0 turns it off")
    order = np.random.default_rng([samples.seed, value]).permutation(samples.n_classes)
    return replace(samples, y=torch.from_numpy(order)[samples.y])


def noise(samples: Samples, value: Annotated[float, "normal noise, its deviation after normalisation"]) -> Samples:
    """Add normal noise, drawn once for every sample."""
    if not 0 <= value <= MOST_NOISE:
        raise InputError(f"noise must be in 0..{MOST_NOISE:,}, got {value}; 0 turns it off")
    x = as_floats(samples.x)  # noise needs finer steps than a byte has
    drawn = np.random.default_rng(samples.seed + samples.group).standard_normal(tuple(x.shape), np.float32)
    unit = torch.tensor(samples.std).view(-1, *(1,) * (x.ndim - 2)) if samples.std else torch.ones(())
    return replace(samples, x=x + value * unit * torch.from_numpy(drawn))


def as_floats(x: Tensor) -> Tensor:
    """Return samples as 32-bit numbers, bytes divided by 255."""
    return x.to(torch.float32) / 255 if x.dtype == torch.uint8 else x.to(torch.float32)


def _per_image(x: Tensor, f: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> Tensor:
    if x.ndim < 3:
        raise InputError(f"blur and rotation need images [rows, ..., height, width], got samples of shape {tuple(x.shape[1:])}")
    a = x.numpy()
    shifted = f(a.astype(np.float32))
    if x.dtype == torch.uint8:
        shifted = np.clip(np.rint(shifted), 0, 255)
    return torch.from_numpy(np.ascontiguousarray(shifted.astype(a.dtype)))


def check_shift(name: str, shift: Shift) -> None:
    """Check that a shift takes samples and one settable value."""
    check_settable(shift, f"shift {name}", "samples", "value")
    if list(inspect.signature(shift).parameters) != ["samples", "value"]:
        raise InputError(f"shift {name} must take samples and value, and nothing else; make value a dataclass of several")
    check_settable(shift, f"shift {name}", "samples")


# A group names a shift with its value, `{clients=10, blur=2.0}`; 0 is off. Several are applied in the order of this table.
SHIFTS: Table[Shift] = Table(
    "shift",
    "fedgwc.shifts",
    {"blur": blur, "rotate": rotate, "relabel": relabel, "permute": permute, "noise": noise},
    check_shift,
)
