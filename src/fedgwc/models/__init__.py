"""Models: the networks of the paper and a small one for digits.

A model is a function of the data's shape and class count.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from fedgwc.core.settings import check_settable
from fedgwc.core.tables import Table
from fedgwc.models.mobilenet import mobilenet_v2
from fedgwc.models.small import cnn, lenet5, mlp


def check_model(name: str, build: Callable[..., nn.Module]) -> None:
    """Refuse an entry that cannot be built from the data's shape and checked settings."""
    check_settable(build, f"{name} in MODELS", "shape", "n_classes")


MODELS: Table[Callable[..., nn.Module]] = Table(
    "model", "fedgwc.models", {"mlp": mlp, "cnn": cnn, "lenet5": lenet5, "mobilenet_v2": mobilenet_v2}, check_model
)

__all__ = ["MODELS", "cnn", "lenet5", "mlp", "mobilenet_v2"]
