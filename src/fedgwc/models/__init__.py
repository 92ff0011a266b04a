"""The networks of the paper and a small one for digits. A model is a function of the data's shape and class count."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from fedgwc.models.mobilenet import mobilenet_v2
from fedgwc.models.small import cnn, lenet5, mlp

MODELS: dict[str, Callable[..., nn.Module]] = {"mlp": mlp, "cnn": cnn, "lenet5": lenet5, "mobilenet_v2": mobilenet_v2}

__all__ = ["MODELS", "cnn", "lenet5", "mlp", "mobilenet_v2"]
