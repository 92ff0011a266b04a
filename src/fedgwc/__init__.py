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
    from fedgwc.engines.settings import EngineSettings
    from fedgwc.engines.simulate import Simulator
    from fedgwc.errors import InputError
    from fedgwc.experiment import Experiment, load
    from fedgwc.interactions import affinity, fedgw_cluster, update_interactions, update_weights, weight_interval
    from fedgwc.local import FlatModel, LocalTraining
    from fedgwc.perception import perception_distances
    from fedgwc.readings import first_losses, gaussian_rewards, gaussian_sides, gaussian_spreads, loss_variances
    from fedgwc.runner import Result, rounds, run
    from fedgwc.together import run_together
    from fedgwc.trained import load_model

__version__ = "0.1.0"

_HOME = {
    "ALGORITHMS": "algorithms",
    "Aggregator": "aggregate",
    "Algorithm": "core",
    "Clustering": "core",
    "Engine": "core",
    "EngineSettings": "engines.settings",
    "Experiment": "experiment",
    "FlatModel": "local",
    "InputError": "errors",
    "LocalTraining": "local",
    "Result": "runner",
    "Rng": "core",
    "Scores": "core",
    "Server": "aggregate",
    "Simulator": "engines.simulate",
    "Updates": "core",
    "affinity": "interactions",
    "fedgw_cluster": "interactions",
    "first_losses": "readings",
    "gaussian_rewards": "readings",
    "gaussian_sides": "readings",
    "gaussian_spreads": "readings",
    "load": "experiment",
    "load_model": "trained",
    "loss_variances": "readings",
    "perception_distances": "perception",
    "rounds": "runner",
    "run": "runner",
    "run_together": "together",
    "update_interactions": "interactions",
    "update_weights": "interactions",
    "weight_interval": "interactions",
}
_MODULES = ("data", "flower", "metrics")

__all__ = [
    "ALGORITHMS",
    "Aggregator",
    "Algorithm",
    "Clustering",
    "Engine",
    "EngineSettings",
    "Experiment",
    "FlatModel",
    "InputError",
    "LocalTraining",
    "Result",
    "Rng",
    "Scores",
    "Server",
    "Simulator",
    "Updates",
    "affinity",
    "data",
    "fedgw_cluster",
    "first_losses",
    "gaussian_rewards",
    "gaussian_sides",
    "gaussian_spreads",
    "load",
    "load_model",
    "loss_variances",
    "metrics",
    "perception_distances",
    "rounds",
    "run",
    "run_together",
    "update_interactions",
    "update_weights",
    "weight_interval",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"fedgwc.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"fedgwc.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fedgwc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
