"""FeSEM, multi-center federated learning (Xie et al., 2020; Long et al., 2023): k-means over the clients' models.

A client belongs to the centre that its trained model lies nearest to (E-step); a centre is the mean of its clients' models
(M-step); then the clients train on from their centres.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from fedgwc.algorithms.aggregate import Aggregator, Server
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Engine
from fedgwc.core.sampling import Rate, check_models, check_rate, cohort_size, sample, several
from fedgwc.core.tensors import stacked
from fedgwc.core.types import Clustering, Ids, Rng


@dataclass(frozen=True)
class FeSEMState:
    centres: tuple[Server, ...]  # one, the common start, until the first local models have been grouped; then k
    labels: Ids  # [N] the centre each client was nearest to last; -1: not known yet


@dataclass(frozen=True)
class FeSEM:
    """By default everybody starts from one model, and the first cohort's local models make the k centres.

    Centres that start at one point would stay there, since no client is nearer to any of them. Centres that start from
    independent initialisations lie so far apart that a client can never leave the one it was first given to. Local models
    trained from one common point differ by what the clients' data did to them, which is what the distance should measure.
    """

    rate: Rate = 0.1
    k: Annotated[int, "centres"] = 2
    start: Annotated[Literal["common", "independent"], "independent: k initialisations, clients dealt out at random"] = "common"
    aggregator: Aggregator = field(default_factory=Aggregator)

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_models(self.k, "fesem k", "centres")

    @property
    def n_models(self) -> int | None:
        """How many independent initialisations `init` wants; None: one model."""
        return self.k if self.start == "independent" else None

    def init(self, model: Tensor, n_clients: int) -> FeSEMState:
        nowhere = np.full(n_clients, -1, np.int64)
        if self.start == "independent":
            return FeSEMState(tuple(Server(theta) for theta in several(model, self.k, "fesem with start=independent")), nowhere)
        if self.k > cohort_size(n_clients, self.rate):
            raise InputError(
                f"fesem with k={self.k} makes its centres from one cohort, but {n_clients} clients at rate {self.rate} "
                f"give cohorts of {cohort_size(n_clients, self.rate)}; lower k or raise rate"
            )
        return FeSEMState((Server(model),), nowhere)

    def round(self, state: FeSEMState, engine: Engine, rng: Rng) -> FeSEMState:
        n_clients = len(state.labels)
        cohort = sample(np.arange(n_clients), cohort_size(n_clients, self.rate), rng.generator(0))
        updates = engine.train(cohort, *self._starts(state, cohort, rng), rng.training)
        if not len(updates):
            return state
        centres = state.centres
        nearest: Ids | None
        if len(centres) == self.k:
            nearest = e_step(updates.parameters, stacked([c.theta for c in centres])[:, : updates.n_params])
        else:
            nearest, centres = first_groups(updates.parameters, self.k), centres * self.k
        if nearest is None:  # too few answers to tell k groups apart: one more round with the common model
            return FeSEMState((self.aggregator.step(centres[0], updates),), state.labels)
        # M-step; a centre without clients stays where it is.
        labels = state.labels.copy()
        labels[updates.clients] = nearest
        return FeSEMState(tuple(self.aggregator.steps(centres, updates, nearest)), labels)

    def _starts(self, state: FeSEMState, cohort: Ids, rng: Rng) -> tuple[Tensor, Ids]:
        """The models that the cohort starts from, and which of them each client gets: its centre, or the middle of them all.

        A client that is new starts in the middle, so that its own training and not a draw decides where it belongs; among
        independent centres, where the middle is no model at all, a draw has to.
        """
        models = stacked([c.theta for c in state.centres])
        which = state.labels[cohort]
        if (which >= 0).all():
            return models, which
        if self.start == "independent":
            drawn = rng.generator(1).integers(len(models), size=len(state.labels))[cohort]
            return models, np.where(which < 0, drawn, which)
        if len(models) == 1:
            return models, np.zeros(len(cohort), np.int64)
        return torch.cat([models, models.mean(0, keepdim=True)]), np.where(which < 0, len(models), which)

    def clustering(self, state: FeSEMState) -> Clustering:
        """A client whose centre is not known yet is served by the one that most of the others belong to."""
        members = np.bincount(state.labels[state.labels >= 0], minlength=1)
        labels = np.where(state.labels < 0, members.argmax(), state.labels)
        return Clustering(stacked([c.theta for c in state.centres]), labels)


def e_step(points: Tensor, centres: Tensor) -> Ids:
    """[n]: the nearest of centres [k, D] to each of points [n, D]."""
    # Differences first, then squares, in double: a centre that has exploded must not drown the distances to the others.
    distances = [torch.linalg.vector_norm(point - centres, dim=1, dtype=torch.float64) for point in points]  # n of [k]
    return torch.stack(distances).argmin(1).cpu().numpy().astype(np.int64)


def first_groups(points: Tensor, k: int) -> Ids | None:
    """[n] labels 0..k-1 by Ward's method, which merges where the sum of squared distances grows least; None: too few points.

    k-means from random seeds would depend on the order of the clients and, with a cohort of ten, on luck.
    """
    if len(points) < max(k, 2):
        return None
    x = points.to(torch.float64)  # squares of what a client that explodes may send overflow in single precision
    x = x - x.mean(0)
    gram = (x @ x.T).cpu().numpy()  # [n, n]
    squared = gram.diagonal()[:, None] + gram.diagonal() - gram - gram.T
    distances = np.sqrt(squared.clip(min=0))
    np.fill_diagonal(distances, 0)
    labels: Ids = fcluster(linkage(squareform(distances, checks=False), "ward"), k, "maxclust").astype(np.int64) - 1
    return labels if labels.max() == k - 1 else None
