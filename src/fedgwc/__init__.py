"""Clustered federated learning: FedGWC, its baselines, metrics and experiments.

The public names are below, nothing else. They load on first use, so that `fedgwc --help` does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedgwc.core.version import VERSION

if TYPE_CHECKING:
    from fedgwc import data as data
    from fedgwc import metrics as metrics
    from fedgwc import models as models
    from fedgwc.algorithms import ALGORITHMS as ALGORITHMS
    from fedgwc.algorithms.aggregate import Aggregator as Aggregator
    from fedgwc.algorithms.aggregate import Server as Server
    from fedgwc.algorithms.auto.readings import first_losses as first_losses
    from fedgwc.algorithms.auto.readings import gaussian_sides as gaussian_sides
    from fedgwc.algorithms.auto.readings import gaussian_spreads as gaussian_spreads
    from fedgwc.algorithms.auto.readings import loss_variances as loss_variances
    from fedgwc.algorithms.fedgwc.clustering import fedgw_cluster as fedgw_cluster
    from fedgwc.algorithms.fedgwc.interactions import affinity as affinity
    from fedgwc.algorithms.fedgwc.interactions import update_interactions as update_interactions
    from fedgwc.algorithms.fedgwc.interactions import update_weights as update_weights
    from fedgwc.algorithms.fedgwc.rewards import gaussian_rewards as gaussian_rewards
    from fedgwc.algorithms.method import Method as Method
    from fedgwc.algorithms.perception import perception_distances as perception_distances
    from fedgwc.comparison.frames import results as results
    from fedgwc.core.errors import InputError as InputError
    from fedgwc.core.layout import Layout as Layout
    from fedgwc.core.protocols import Algorithm as Algorithm
    from fedgwc.core.protocols import Engine as Engine
    from fedgwc.core.types import Clustering as Clustering
    from fedgwc.core.types import Rng as Rng
    from fedgwc.core.types import Scores as Scores
    from fedgwc.core.types import Updates as Updates
    from fedgwc.core.work import LocalTraining as LocalTraining
    from fedgwc.core.work import Work as Work
    from fedgwc.engines import ENGINES as ENGINES
    from fedgwc.engines.settings import EngineSettings as EngineSettings
    from fedgwc.engines.simulator import Simulator as Simulator
    from fedgwc.metrics.intervals import weight_interval as weight_interval
    from fedgwc.metrics.table import Evaluated as Evaluated
    from fedgwc.runs.experiment import Experiment as Experiment
    from fedgwc.runs.experiment import load as load
    from fedgwc.runs.loop import Result as Result
    from fedgwc.runs.loop import rounds as rounds
    from fedgwc.runs.loop import run as run
    from fedgwc.runs.saved_models import load_model as load_model
    from fedgwc.runs.simulated import evaluate_clustering as evaluate_clustering
    from fedgwc.runs.together import run_together as run_together
    from fedgwc.training.flat_model import FlatModel as FlatModel

__version__ = VERSION

_HOME = {
    "ALGORITHMS": "algorithms",
    "Aggregator": "algorithms.aggregate",
    "Algorithm": "core.protocols",
    "Clustering": "core.types",
    "Engine": "core.protocols",
    "ENGINES": "engines",
    "EngineSettings": "engines.settings",
    "Evaluated": "metrics.table",
    "Experiment": "runs.experiment",
    "FlatModel": "training.flat_model",
    "InputError": "core.errors",
    "Layout": "core.layout",
    "LocalTraining": "core.work",
    "Method": "algorithms.method",
    "Result": "runs.loop",
    "Rng": "core.types",
    "Scores": "core.types",
    "Server": "algorithms.aggregate",
    "Simulator": "engines.simulator",
    "Updates": "core.types",
    "Work": "core.work",
    "affinity": "algorithms.fedgwc.interactions",
    "evaluate_clustering": "runs.simulated",
    "fedgw_cluster": "algorithms.fedgwc.clustering",
    "first_losses": "algorithms.auto.readings",
    "gaussian_rewards": "algorithms.fedgwc.rewards",
    "gaussian_sides": "algorithms.auto.readings",
    "gaussian_spreads": "algorithms.auto.readings",
    "load": "runs.experiment",
    "load_model": "runs.saved_models",
    "loss_variances": "algorithms.auto.readings",
    "perception_distances": "algorithms.perception",
    "results": "comparison.frames",
    "rounds": "runs.loop",
    "run": "runs.loop",
    "run_together": "runs.together",
    "update_interactions": "algorithms.fedgwc.interactions",
    "update_weights": "algorithms.fedgwc.interactions",
    "weight_interval": "metrics.intervals",
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
