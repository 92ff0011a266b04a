"""No federation at all: what federated learning has to beat, and sometimes does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedgwc.core.protocols import Engine
from fedgwc.core.sampling import Rate, check_rate, cohort_size, sample
from fedgwc.core.types import Clustering, Ids, Rng


@dataclass(frozen=True)
class AloneState:
    models: tuple[Tensor, ...]  # [D] of each client


@dataclass(frozen=True)
class Alone:
    """Every client trains a model of its own: one start for all, as many clients a round as elsewhere, and no averages."""

    rate: Rate = 0.1

    def __post_init__(self) -> None:
        check_rate(self.rate)

    def init(self, model: Tensor, n_clients: int) -> AloneState:
        return AloneState((model,) * n_clients)

    def round(self, state: AloneState, engine: Engine, rng: Rng) -> AloneState:
        n_clients = len(state.models)
        cohort = sample(np.arange(n_clients), cohort_size(n_clients, self.rate), rng.generator(0))
        starts = torch.stack([state.models[k] for k in cohort.tolist()])
        updates = engine.train(cohort, starts, np.arange(len(cohort)), rng.training)
        models = list(state.models)
        for k, trained in zip(updates.clients.tolist(), updates.models.unbind(), strict=True):
            models[k] = trained.clone()  # a view would keep the whole cohort's models alive
        return AloneState(tuple(models))

    def names(self, state: AloneState) -> Ids:
        return np.arange(len(state.models))

    def clustering(self, state: AloneState) -> Clustering:
        return Clustering(torch.stack(state.models), self.names(state))
