"""FedAvg (McMahan et al., 2017). FedAvgM and FairAvg are its aggregator's settings, FedProx is its clients'."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from fedgwc.algorithms.aggregate import Aggregator, Server
from fedgwc.core.protocols import Engine
from fedgwc.core.sampling import Rate, check_rate, cohort_size, sample
from fedgwc.core.types import Clustering, Ids, Rng


@dataclass(frozen=True)
class FedAvgState:
    server: Server
    n_clients: int


@dataclass(frozen=True)
class FedAvg:
    """One model for everybody: each round a sampled cohort trains it and the server takes the mean."""

    rate: Rate = 0.1
    aggregator: Aggregator = field(default_factory=Aggregator)

    def __post_init__(self) -> None:
        check_rate(self.rate)

    def init(self, model: Tensor, n_clients: int) -> FedAvgState:
        return FedAvgState(Server(model), n_clients)

    def round(self, state: FedAvgState, engine: Engine, rng: Rng) -> FedAvgState:
        everybody = np.arange(state.n_clients)
        cohort = sample(everybody, cohort_size(state.n_clients, self.rate), rng.generator(0))
        updates = engine.train(cohort, state.server.theta[None], _zeros(len(cohort)), rng.training)
        return FedAvgState(self.aggregator.step(state.server, updates), state.n_clients)

    def clustering(self, state: FedAvgState) -> Clustering:
        return Clustering(state.server.theta[None], _zeros(state.n_clients))


def _zeros(n: int) -> Ids:
    return np.zeros(n, np.int64)
