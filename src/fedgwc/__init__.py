"""Clustered federated learning: FedGWC, its baselines, metrics and experiments.

The public names are below, nothing else. They load on first use, so that `fedgwc --help` does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgwc import data as data
    from fedgwc import metrics as metrics
    from fedgwc import models as models
    from fedgwc.aggregate import Aggregator as Aggregator
    from fedgwc.aggregate import Server as Server
    from fedgwc.algorithms import ALGORITHMS as ALGORITHMS
    from fedgwc.core import Algorithm as Algorithm
    from fedgwc.core import Clustering as Clustering
    from fedgwc.core import Engine as Engine
    from fedgwc.core import Rng as Rng
    from fedgwc.core import Scores as Scores
    from fedgwc.core import Updates as Updates
    from fedgwc.engines.settings import EngineSettings as EngineSettings
    from fedgwc.engines.simulate import Simulator as Simulator
    from fedgwc.errors import InputError as InputError
    from fedgwc.experiment import Experiment as Experiment
    from fedgwc.experiment import load as load
    from fedgwc.interactions import affinity as affinity
    from fedgwc.interactions import fedgw_cluster as fedgw_cluster
    from fedgwc.interactions import update_interactions as update_interactions
    from fedgwc.interactions import update_weights as update_weights
    from fedgwc.interactions import weight_interval as weight_interval
    from fedgwc.local import FlatModel as FlatModel
    from fedgwc.local import LocalTraining as LocalTraining
    from fedgwc.perception import perception_distances as perception_distances
    from fedgwc.readings import first_losses as first_losses
    from fedgwc.readings import gaussian_rewards as gaussian_rewards
    from fedgwc.readings import gaussian_sides as gaussian_sides
    from fedgwc.readings import gaussian_spreads as gaussian_spreads
    from fedgwc.readings import loss_variances as loss_variances
    from fedgwc.runner import Result as Result
    from fedgwc.runner import rounds as rounds
    from fedgwc.runner import run as run
    from fedgwc.together import run_together as run_together
    from fedgwc.trained import load_model as load_model

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
_MODULES = ("data", "metrics", "models")

__all__ = sorted((*_HOME, *_MODULES))  # without `flower`, an extra: a star needs no Flower


def __getattr__(name: str) -> Any:
    if name in (*_MODULES, "flower"):
        return importlib.import_module(f"fedgwc.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"fedgwc.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fedgwc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
