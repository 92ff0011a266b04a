"""FeSEM (Xie et al., 2020; Long et al., 2023): k-means over clients' models.

Also known as multi-center federated learning.

A client belongs to the centre that its trained model lies nearest to (E-step); a centre is the mean of its clients' models
(M-step); then the clients train on from their centres.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.groups import Groups, GroupState, Parents, Plan, Round, everybody, most_common
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Engine
from fedgwc.core.sampling import check_initial_models, check_models, cohort_size
from fedgwc.core.search import Between
from fedgwc.core.tensors import stack_rows
from fedgwc.core.types import Ids, Rng


@dataclass(frozen=True)
class FeSEMState(GroupState):
    nearest: Ids  # [N] the centre each client was nearest to last; -1: not known yet

    def labels(self) -> Ids:
        """Return each client's centre [N].

        A client whose centre is not known yet is put into the largest group.

        A client whose centre is not known yet is served by the largest group's.
        """
        return most_common(self.nearest)


@dataclass(frozen=True)
class FeSEM(Groups[FeSEMState]):
    """k-means over local models, with one server model per centre.

    By default everybody starts from one model, and the first cohort's local models make the k centres.

    Centres that start at one point would stay there, since no client is nearer to any of them. Centres that start from
    independent initialisations lie so far apart that a client can never leave the one it was first given to. Local models
    trained from one common point differ by what the clients' data did to them, which is what the distance should measure.
    """

    learns_from = "updates"

    k: Annotated[int, "centres", Between(2, 8)] = 2
    start: Annotated[Literal["common", "independent"], "independent: k initialisations, clients dealt out at random"] = "common"

    def __post_init__(self) -> None:
        check_models(self.k, "fesem k", "centres")

    @property
    def n_models(self) -> int | None:
        return self.k if self.start == "independent" else None

    def init(self, model: Tensor, n_clients: int, rate: float) -> tuple[Sequence[Tensor], FeSEMState]:
        nowhere = FeSEMState(np.full(n_clients, -1, np.int64))
        if self.start == "independent":
            return check_initial_models(model, self.k, f"fesem with start=independent and k={self.k}").unbind(), nowhere
        if self.k > cohort_size(n_clients, rate):
            raise InputError(
                f"fesem with k={self.k} makes its centres from one cohort, but {n_clients} clients at rate {rate} "
                f"give cohorts of {cohort_size(n_clients, rate)}; lower k or raise rate"
            )
        return [model], nowhere

    def plan(self, state: FeSEMState, servers: Sequence[Server], rate: float, engine: Engine, rng: Rng) -> Plan:
        """Send each client its centre's model.

        A new client starts from the centres' mean, so that its own training and not a draw decides where it belongs.

        Among independent centres, where the middle is no model at all, a draw has to.
        """
        cohort, models = everybody(len(state.nearest), rate, rng), stack_rows([s.theta for s in servers])
        which = state.nearest[cohort]
        if (which >= 0).all():
            return Plan(cohort, models, which)
        if self.start == "independent":
            drawn = rng.generator(1).integers(len(models), size=len(state.nearest))[cohort]
            return Plan(cohort, models, np.where(which < 0, drawn, which))
        if len(models) == 1:
            return Plan(cohort, models, np.zeros(len(cohort), np.int64))
        middle = models.mean(0, keepdim=True)
        return Plan(cohort, torch.cat([models, middle]), np.where(which < 0, len(models), which))

    def regroup(self, state: FeSEMState, round: Round) -> tuple[FeSEMState, Ids, Parents]:
        """Assign each answer to the nearest centre (E-step).

        The server's step is the M-step; a centre without clients stays where it is.
        """
        updates, parents = round.updates, None
        if not len(updates):
            return state, np.zeros(0, np.int64), None
        if self._has_centres(state):
            group = e_step(updates.parameters, round.plan.models[: self.k, : updates.n_params])
        elif (found := first_groups(updates.parameters, self.k)) is not None:
            group, parents = found, [0] * self.k
        else:  # too few answers to tell k groups apart: one more round with the common model
            return state, np.zeros(len(updates), np.int64), None
        nearest = state.nearest.copy()
        nearest[updates.clients] = group
        return FeSEMState(nearest), group, parents

    def _has_centres(self, state: FeSEMState) -> bool:
        return self.start == "independent" or self.k == 1 or bool((state.nearest >= 0).any())

    def grow(self, state: FeSEMState, rows: Ids) -> tuple[FeSEMState, Parents]:
        # Before the first grouping there is one model and no label; the joiners are grouped with all the others.
        grouped = rows if self._has_centres(state) else np.full(len(rows), -1, np.int64)
        return FeSEMState(np.concatenate([state.nearest, grouped])), None


def e_step(points: Tensor, centres: Tensor) -> Ids:
    """Find the nearest of centres [k, D] to each of points [n, D]: [n]."""
    # Differences first, then squares, in double: a centre that has exploded must not drown the distances to the others.
    distances = [torch.linalg.vector_norm(point - centres, dim=1, dtype=torch.float64) for point in points]  # n of [k]
    return torch.stack(distances).argmin(1).cpu().numpy().astype(np.int64)


def first_groups(points: Tensor, k: int) -> Ids | None:
    """Group points [n, D] by Ward's method into k groups.

    Labels [n] in 0..k-1; None: too few points.

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
