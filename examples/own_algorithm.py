"""Your own algorithm: a frozen dataclass of settings with three pure methods. Here: FedAvg that leaves outliers out.

Each round it drops the sampled clients whose losses are the lowest and the highest before it takes the mean. The table of
algorithms makes it known to every command that is told of this file:

    fedgwc compare digits --use own_algorithm.py --algorithms fedavg,trimmed --sweep trimmed.trim=1,2
"""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import torch

import fedgwc
from fedgwc.core.sampling import cohort_size, sample
from fedgwc.data import Group, digits
from fedgwc.models import mlp


@dataclass(frozen=True)
class TrimmedState:
    server: fedgwc.Server  # the model [D] and its momentum
    n_clients: int


@dataclass(frozen=True)
class TrimmedFedAvg:
    """FedAvg without the clients whose losses stand out."""

    rate: Annotated[float, "share of the clients that train in a round"] = 0.3  # what `fedgwc list trimmed` shows
    trim: Annotated[int, "clients left out at either end"] = 2
    server: fedgwc.Aggregator = field(default_factory=fedgwc.Aggregator)

    def init(self, model: torch.Tensor, n_clients: int, layout: fedgwc.Layout) -> TrimmedState:
        return TrimmedState(fedgwc.Server(model), n_clients)

    def round(self, state: TrimmedState, engine: fedgwc.Engine, rng: fedgwc.Rng) -> TrimmedState:
        everybody = np.arange(state.n_clients)
        cohort = sample(everybody, cohort_size(state.n_clients, self.rate), rng.generator())
        updates = engine.train(cohort, state.server.theta[None], np.zeros(len(cohort), np.int64), rng.training)
        order = np.argsort(updates.losses.nanmean(1).numpy())  # [n], the clients that answered, by mean loss
        kept = updates.rows(order[self.trim : len(order) - self.trim]) if len(order) > 2 * self.trim else updates
        return TrimmedState(self.server.step(state.server, kept), state.n_clients)

    def clustering(self, state: TrimmedState) -> fedgwc.Clustering:
        return fedgwc.Clustering(state.server.theta[None], np.zeros(state.n_clients, np.int64))  # one model serves all


fedgwc.ALGORITHMS["trimmed"] = TrimmedFedAvg()

if __name__ == "__main__":
    federation = digits(seed=0, groups=(Group(27), Group(3, relabel=1)), train_size=40, test_size=15)
    torch.manual_seed(0)
    local = fedgwc.LocalTraining(steps=4, batch=16, lr=0.1)
    engine = fedgwc.Simulator(federation, mlp(federation.shape, federation.n_classes), local)
    for algorithm in (TrimmedFedAvg(trim=0), TrimmedFedAvg(trim=2)):
        *_, (number, state) = fedgwc.rounds(algorithm, engine, engine.model.vector(), federation.n_clients, 100)
        scores = fedgwc.evaluate_clustering(algorithm.clustering(state), engine, federation)
        print(f"trim {algorithm.trim}: accuracy {scores['accuracy']:.1%} after {number} rounds")
