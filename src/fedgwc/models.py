"""The networks of the paper and a small one for digits. A model is a function of the data's shape and class count."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn


def mlp(shape: tuple[int, ...], n_classes: int, *, hidden: tuple[int, ...] = (32,)) -> nn.Module:
    """Dense layers with ReLU between them; digits with one hidden layer of 32: 2,410 parameters."""
    layers: list[nn.Module] = [nn.Flatten()]
    width = math.prod(shape)
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, n_classes))


MODELS: dict[str, Callable[..., nn.Module]] = {"mlp": mlp}
