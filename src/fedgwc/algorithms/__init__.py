"""The table of algorithms. A preset is an algorithm with its hyper-parameters; a variant is a setting, not a class."""

from __future__ import annotations

from typing import Any

from fedgwc.aggregate import Aggregator
from fedgwc.algorithms.fedavg import FedAvg
from fedgwc.core import Algorithm

ALGORITHMS: dict[str, Algorithm[Any]] = {
    "fedavg": FedAvg(),
    "fedavgm": FedAvg(aggregator=Aggregator(momentum=0.9)),
    "fedprox": FedAvg(),
    "fairavg": FedAvg(aggregator=Aggregator(weights="equal")),
}

# What a preset changes in the clients' own training; a recipe's explicit [local] keys win over these.
LOCAL: dict[str, dict[str, float]] = {"fedprox": {"prox": 0.01}}
