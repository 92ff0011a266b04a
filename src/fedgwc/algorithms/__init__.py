"""The table of algorithms. A preset is an algorithm with its hyper-parameters; a variant is a setting, not a class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fedgwc.algorithms.aggregate import Aggregator
from fedgwc.algorithms.alone import Alone
from fedgwc.algorithms.auto.algorithm import FedGWC
from fedgwc.algorithms.cfl import CFL
from fedgwc.algorithms.fedavg import FedAvg
from fedgwc.algorithms.fesem import FeSEM
from fedgwc.algorithms.ifca import IFCA
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Algorithm

ALGORITHMS: dict[str, Algorithm[Any]] = {
    "alone": Alone(),
    "fedavg": FedAvg(),
    "fedavgm": FedAvg(aggregator=Aggregator(momentum=0.9)),
    "fedprox": FedAvg(),
    "fairavg": FedAvg(aggregator=Aggregator(weights="equal")),
    "ifca": IFCA(),
    "fesem": FeSEM(),
    "cfl": CFL(),
    "fedgwc": FedGWC(),
    # The text, literally; where it is silent: n_max 5, no smallest group, the mse over the whole matrix. That mse is "updated
    # according to" the running mean of Eq. 3, from 1 on, and starts anew after every attempt, into one group or several.
    "fedgwc-paper": FedGWC(
        step="constant",
        when="mse",
        mse_average=True,
        failure_resets_mse=True,
        score="affinity",
        assign="kmeans",
        after_split="keep",
        min_size=1,
        sampling="rare-first",
        pairs_up_to=20_000,
    ),
    # The authors' released code, row by row.
    "fedgwc-release": FedGWC(
        statistics="weighted",
        normalise=True,
        step="cohort",
        start="1/K^2",
        when="mse",
        mse_over="touched",
        mse_average=True,
        patience="sweep",
        failure_resets_mse=True,
        features="columns",
        scaled=True,
        n_max=4,
        groups_by_cohort=True,
        strict=True,
        after_split="keep",
        min_size=1,
        cohort="same",
        pairs_up_to=20_000,
    ),
}

# What a preset changes in the clients' own training; a recipe's explicit [local] keys win over these.
LOCAL: dict[str, dict[str, float]] = {"fedprox": {"prox": 0.01}}

# One line for whoever chooses among them (`fedgwc list`).
ABOUT: dict[str, str] = {
    "alone": "No federation: every client trains a model of its own.",
    "fedavg": "One model for all: each round some clients train it, and the server averages by sample counts.",
    "fedavgm": "FedAvg with momentum 0.9 on the server.",
    "fedprox": "FedAvg whose clients are held near the common model (local.prox=0.01).",
    "fairavg": "FedAvg in which every client counts the same, however many samples it has.",
    "ifca": "k models: every client trains the one that has the lowest loss on its data. You give k.",
    "fesem": "k models: every client belongs to the one nearest to its own trained model. You give k.",
    "cfl": "Divides clients in two, again and again, where their updates point in different directions.",
    "fedgwc": "Groups clients whose losses behave alike, one model per group, and finds how many groups there are.",
    "fedgwc-paper": "FedGWC as the paper's text has it.",
    "fedgwc-release": "FedGWC as its authors' released code has it.",
}


def idle(algorithm: Algorithm[Any]) -> frozenset[str]:
    """The settings that have no effect beside the others."""
    names: frozenset[str] = getattr(algorithm, "idle", frozenset())
    return names


def check_used(algorithm: Algorithm[Any], settings: Iterable[str], name: str) -> None:
    """Who sets something wants an effect; a preset may well list what it does not use."""
    for key in settings:
        if key in idle(algorithm):
            users = [other for other, a in ALGORITHMS.items() if other != name and hasattr(a, key) and key not in idle(a)]
            remedy = f"; {', '.join(users)} would: choose one by algorithm.name" if users else ""
            if name in ALGORITHMS and key not in idle(ALGORITHMS[name]):
                remedy = "; without these it would"
            raise InputError(f"{name} makes no use of {key} beside its other settings{remedy}")
