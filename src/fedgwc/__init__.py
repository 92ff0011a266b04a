"""Clustered federated learning: FedGWC, its baselines, metrics and experiments.

The public names are below, nothing else. They load on first use, so that `fedgwc --help` does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgwc import data, metrics
    from fedgwc.aggregate import Aggregator, Server
    from fedgwc.algorithms import ALGORITHMS
    from fedgwc.core import Algorithm, Clustering, Engine, Rng, Scores, Updates
    from fedgwc.engines.simulate import EngineSettings, Simulator
    from fedgwc.errors import InputError
    from fedgwc.local import FlatModel, LocalTraining

__version__ = "0.1.0"

_HOME = {
    "ALGORITHMS": "algorithms",
    "Aggregator": "aggregate",
    "Algorithm": "core",
    "Clustering": "core",
    "Engine": "core",
    "EngineSettings": "engines.simulate",
    "FlatModel": "local",
    "InputError": "errors",
    "LocalTraining": "local",
    "Rng": "core",
    "Scores": "core",
    "Server": "aggregate",
    "Simulator": "engines.simulate",
    "Updates": "core",
}
_MODULES = ("data", "flower", "metrics")

__all__ = [
    "ALGORITHMS",
    "Aggregator",
    "Algorithm",
    "Clustering",
    "Engine",
    "EngineSettings",
    "FlatModel",
    "InputError",
    "LocalTraining",
    "Rng",
    "Scores",
    "Server",
    "Simulator",
    "Updates",
    "data",
    "metrics",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"fedgwc.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"fedgwc.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fedgwc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
