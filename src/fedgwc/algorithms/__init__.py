"""The table of algorithms.

A preset is a method with its settings; a variant is a setting, not a class.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fedgwc.algorithms.aggregate import Aggregator
from fedgwc.algorithms.alone import Alone
from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.cfl import CFL
from fedgwc.algorithms.evidence.algorithm import Evidence
from fedgwc.algorithms.fedavg import OneGroup
from fedgwc.algorithms.fedgwc.algorithm import FedGWC
from fedgwc.algorithms.fedgwc.splits import PaperSplit
from fedgwc.algorithms.fesem import FeSEM
from fedgwc.algorithms.given import Given
from fedgwc.algorithms.ifca import IFCA
from fedgwc.algorithms.method import Method
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Algorithm
from fedgwc.core.settings import check_settable
from fedgwc.core.tables import Table


def check_algorithm(name: str, algorithm: Any) -> None:
    """Refuse an entry that is no algorithm, or whose settings cannot be checked."""
    what = f"{name} in ALGORITHMS"
    if isinstance(algorithm, type):
        raise InputError(f"{what} is a class; enter an instance, {algorithm.__name__}()")
    lacking = [method for method in ("init", "round", "clustering") if not callable(getattr(algorithm, method, None))]
    if lacking or not dataclasses.is_dataclass(algorithm):
        fault = f"has no {', '.join(lacking)}" if lacking else "is no dataclass"
        raise InputError(f"{what} {fault}; an algorithm is a frozen dataclass with init, round, clustering")
    check_settable(algorithm, what)


# The text, literally. Where it is silent: n_max 5, no smallest group, the mse over the whole matrix. That mse is "updated
# according to" the running mean of Eq. 3, from 1 on, and starts anew after every attempt, into one group or several.
PAPER = FedGWC()
# The authors' released code, row by row.
RELEASE_SPLIT = PaperSplit(
    n_max=4,
    mse_over="touched",
    patience="sweep",
    features="columns",
    scaled=True,
    score="embedding",
    assign="cluster_qr",
    groups_by_cohort=True,
    strict=True,
)
RELEASE = FedGWC(
    statistics="weighted", normalise=True, alpha=0.0, start="1/K^2", cohort="same", sampling="uniform", split=RELEASE_SPLIT
)

ALGORITHMS: Table[Algorithm[Any]] = Table(
    "algorithm",
    "fedgwc.algorithms",
    {
        "alone": Method(Alone()),
        "fedavg": Method(OneGroup()),
        "fedavgm": Method(OneGroup(), server=Aggregator(momentum=0.9)),
        "fedprox": Method(OneGroup()),
        "fairavg": Method(OneGroup(), server=Aggregator(weights="equal")),
        "given": Method(Given()),
        "ifca": Method(IFCA()),
        "fesem": Method(FeSEM()),
        "cfl": Method(CFL()),
        "fedgwc": Method(PAPER),
        "fedgwc-release": Method(RELEASE),
        "auto": Auto(),
        "evidence": Method(Evidence()),
    },
    check_algorithm,
)

# What a preset changes in the clients' own training; a recipe's explicit [local] keys win over these.
LOCAL: dict[str, dict[str, float]] = {"fedprox": {"prox": 0.01}}

# One line for whoever chooses among them (`fedgwc list`).
ABOUT: dict[str, str] = {
    "alone": "No federation: every client trains a model of its own.",
    "fedavg": "One model for all: each round some clients train it, and the server averages by sample counts.",
    "fedavgm": "FedAvg with momentum 0.9 on the server.",
    "fedprox": "FedAvg whose clients are held near the common model (local.prox=0.01).",
    "fairavg": "FedAvg in which every client counts the same, however many samples it has.",
    "given": "Groups that you know beforehand (given.labels): a model for each.",
    "ifca": "k models: every client trains the one that has the lowest loss on its data. You give k.",
    "fesem": "k models: every client belongs to the one nearest to its own trained model. You give k.",
    "cfl": "Divides clients in two, again and again, where their updates point in different directions.",
    "fedgwc": "FedGWC as its paper has it: divides clients, again and again, by how their losses interact.",
    "fedgwc-release": "FedGWC as its authors' released code has it.",
    "auto": "Our own default: groups clients whose losses behave alike, and finds how many groups there are.",
    "evidence": "Groups clients whose updates point alike, if groups stand out and their models do better on validation samples.",
}
