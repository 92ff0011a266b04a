"""FedGWC and every other algorithm over real nodes, on Flower. What a Flower user imports; nothing else is public.

>>> from fedgwc.flower import Strategy, client_app, server_app  # doctest: +SKIP

`server_app(recipe)` and `client_app(recipe)` are ready-made apps; `Strategy` adds clustering to an app of one's own;
`FlowerEngine` runs any algorithm of `fedgwc.ALGORITHMS` over a Flower `Grid`; with `private_losses` and `keep_losses` the
losses of such an app stay with its clients. docs/deploy.md says how they behave.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgwc.core.types import TooFewReplies
    from fedgwc.flower.client import client_app
    from fedgwc.flower.engine import FlowerEngine
    from fedgwc.flower.options import Options
    from fedgwc.flower.private_client import keep_losses, private_losses
    from fedgwc.flower.server import server_app
    from fedgwc.flower.strategy import Strategy

_HOME = {
    "Strategy": "fedgwc.flower.strategy",
    "FlowerEngine": "fedgwc.flower.engine",
    "Options": "fedgwc.flower.options",
    "TooFewReplies": "fedgwc.core.types",
    "client_app": "fedgwc.flower.client",
    "keep_losses": "fedgwc.flower.private_client",
    "private_losses": "fedgwc.flower.private_client",
    "server_app": "fedgwc.flower.server",
}

__all__ = [
    "FlowerEngine",
    "Options",
    "Strategy",
    "TooFewReplies",
    "client_app",
    "keep_losses",
    "private_losses",
    "server_app",
]


def __getattr__(name: str) -> Any:
    if name == "FedGWCStrategy":
        warnings.warn("FedGWCStrategy is Strategy now, and leaves with 0.3", DeprecationWarning, stacklevel=2)
        name = "Strategy"
    if name not in _HOME:
        raise AttributeError(f"module 'fedgwc.flower' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "flwr":
            raise
        raise ModuleNotFoundError("fedgwc.flower needs Flower: install fedgwc with its extra `flower`", name="flwr") from None


def __dir__() -> list[str]:
    return sorted(__all__)
