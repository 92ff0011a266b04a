"""A federation that grows: the state of any algorithm with clients added to it. Pure, as the algorithms are."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedgwc.algorithms.alone import AloneState
from fedgwc.algorithms.cfl import CFLState, Known
from fedgwc.algorithms.fedavg import FedAvgState
from fedgwc.algorithms.fedgwc_state import Cluster, FedGWCState, written
from fedgwc.algorithms.fesem import FeSEMState
from fedgwc.algorithms.ifca import IFCAState
from fedgwc.core import Floats, Ids


@singledispatch
def grow(state: Any, rows: Ids) -> Any:
    """The state after clients N, N + 1, ... joined; rows [n] says which model of the clustering serves each of them."""
    raise TypeError(f"clients cannot join a running {type(state).__name__}; start with all of them, or register a `grow`")


@grow.register
def _(state: AloneState, rows: Ids) -> AloneState:
    return AloneState((*state.models, *(state.models[row] for row in rows.tolist())))


@grow.register
def _(state: FedAvgState, rows: Ids) -> FedAvgState:
    return replace(state, n_clients=state.n_clients + len(rows))


@grow.register
def _(state: IFCAState, rows: Ids) -> IFCAState:
    return replace(state, labels=np.concatenate([state.labels, rows]))


@grow.register
def _(state: FeSEMState, rows: Ids) -> FeSEMState:
    # Before the first grouping there is one model and no label; the joiners are grouped with all the others.
    grouped = rows if len(state.centres) > 1 else np.full(len(rows), -1, np.int64)
    return replace(state, labels=np.concatenate([state.labels, grouped]))


@grow.register
def _(state: CFLState, rows: Ids) -> CFLState:
    first = len(state.known.weights)
    clusters = [replace(c, members=_joined(c.members, rows == i, first)) for i, c in enumerate(state.clusters)]
    known = Known(_padded(state.known.updates, len(rows)), np.concatenate([state.known.weights, np.zeros(len(rows))]))
    return replace(state, clusters=tuple(clusters), known=known)


@grow.register
def _(state: FedGWCState, rows: Ids) -> FedGWCState:
    first = len(state.sampled)
    clusters = [_wider(c, _joined(c.members, rows == i, first)) for i, c in enumerate(state.clusters)]
    return replace(state, clusters=tuple(clusters), sampled=np.concatenate([state.sampled, np.zeros(len(rows), np.int64)]))


def _joined(members: Ids, joins: Any, first: int) -> Ids:
    return np.concatenate([members, first + np.flatnonzero(joins)])  # numbers grow, so members stay sorted


def _padded(updates: Tensor, n: int) -> Tensor:
    return torch.cat([updates, updates.new_zeros(n, updates.shape[1])])


def _wider(c: Cluster, members: Ids) -> Cluster:
    """New rows and columns are empty: nothing is known of how the newcomers get along."""
    n = len(members) - len(c.members)
    if n == 0:
        return c
    means = {**written(c), "gamma": c.gamma, "gamma2": c.gamma2, "distances": None}
    wider: dict[str, Any] = {name: np.pad(a, (0, n)) for name, a in means.items() if a is not None}
    distances = None if c.distances is None else _from_the_middle(c.distances, n)
    level = None if c.level is None else np.pad(c.level, (0, n), constant_values=np.nan)
    paths = None if c.paths is None else np.concatenate([c.paths, np.tile(c.paths.mean(0), (n, 1))])
    return replace(c, members=members, distances=distances, paths=paths, level=level, cut=None, told=0.0, told2=0.0, **wider)


def _from_the_middle(distances: Floats, n: int) -> Floats:
    """Squared distances with n newcomers, who stand in the middle of the others until they have shown themselves."""
    to_middle = distances.mean(0) - distances.mean() / 2  # exact: the squared distance of a point to the mean of all
    wider = np.pad(distances, ((0, n), (0, n)))
    wider[-n:, :-n], wider[:-n, -n:] = to_middle, to_middle[:, None]
    return wider
