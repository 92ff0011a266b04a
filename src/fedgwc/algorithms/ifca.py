"""IFCA (Ghosh, Chung, Yin and Ramchandran, 2020): k models, and every client trains the one that fits its data best."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from torch import Tensor

from fedgwc.algorithms.aggregate import Aggregator, Server
from fedgwc.core.protocols import Engine, losses_under
from fedgwc.core.sampling import Rate, check_models, check_rate, cohort_size, sample, several
from fedgwc.core.tensors import stacked
from fedgwc.core.types import Clustering, Ids, Rng


@dataclass(frozen=True)
class IFCAState:
    servers: tuple[Server, ...]  # k
    labels: Ids  # [N] the model each client chose last; -1: it has not taken part yet


@dataclass(frozen=True)
class IFCA:
    """Algorithm 1 with model averaging. The k models must start apart: `init` takes them as [k, D]."""

    rate: Rate = 0.1
    k: Annotated[int, "models; the number of groups has to be known or tried"] = 2
    aggregator: Aggregator = field(default_factory=Aggregator)

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_models(self.k, "ifca k", "models")

    @property
    def n_models(self) -> int:
        """How many independent initialisations `init` wants."""
        return self.k

    def init(self, model: Tensor, n_clients: int) -> IFCAState:
        return IFCAState(tuple(Server(theta) for theta in several(model, self.k, "ifca")), np.full(n_clients, -1, np.int64))

    def round(self, state: IFCAState, engine: Engine, rng: Rng) -> IFCAState:
        n_clients = len(state.labels)
        cohort = sample(np.arange(n_clients), cohort_size(n_clients, self.rate), rng.generator(0))
        models = stacked([s.theta for s in state.servers])
        cohort, choice = best_models(cohort, models, engine)
        if not len(cohort):
            return state
        updates = engine.train(cohort, models, choice, rng.training)

        # A choice counts once its training has arrived: a client that fails leaves no trace at all.
        answered = np.isin(cohort, updates.clients)
        labels = state.labels.copy()
        labels[cohort[answered]] = choice[answered]
        # Over Flower somebody may have stood in who never chose, and is served by the model that most do.
        own = np.where(labels < 0, self.clustering(state).labels, labels)[updates.clients]
        return IFCAState(tuple(self.aggregator.steps(state.servers, updates, own)), labels)

    def clustering(self, state: IFCAState) -> Clustering:
        """A client that never took part is served by the model that most of the others chose."""
        chosen = np.bincount(state.labels[state.labels >= 0], minlength=self.k)
        labels = np.where(state.labels < 0, chosen.argmax(), state.labels)
        return Clustering(stacked([s.theta for s in state.servers]), labels)


def best_models(cohort: Ids, models: Tensor, engine: Engine) -> tuple[Ids, Ids]:
    """The clients that answered, and for each the model with the smallest loss on its own training data."""
    clients, losses = losses_under(models, cohort, engine)
    # A model that has diverged for a client (loss NaN) is the worst choice, not numpy's first one.
    return clients, np.where(np.isnan(losses), np.inf, losses).argmin(1)
