"""A federation that grows: the state of any algorithm with clients added to it. Pure, as the algorithms are."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedgwc.algorithms.alone import AloneState
from fedgwc.algorithms.auto.membership import with_members
from fedgwc.algorithms.auto.state import FedGWCState
from fedgwc.algorithms.cfl import CFLState, LastUpdates
from fedgwc.algorithms.fedavg import FedAvgState
from fedgwc.algorithms.fesem import FeSEMState
from fedgwc.algorithms.ifca import IFCAState
from fedgwc.core.types import Ids


@singledispatch
def grow(state: Any, rows: Ids) -> Any:
    """The state after clients N, N + 1, ... joined; rows [n] says which model of the clustering serves each of them."""
    raise TypeError(f"clients cannot join a running {type(state).__name__}; start with all of them, or register a `grow`")


def room(algorithm: Any, state: Any) -> int | None:
    """How many clients may join; None: any number. Without a word on how such a state grows none can.

    What is known of every pair of clients takes memory that grows with their square, and is kept up to some number only.
    """
    if grow.dispatch(type(state)) is grow.dispatch(object):
        return 0
    if isinstance(state, FedGWCState) and any(c.by_pairs for c in state.clusters):
        return max(0, int(algorithm.pairs_up_to) - len(state.sampled))
    return None


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
    known = LastUpdates(_padded(state.known.updates, len(rows)), np.concatenate([state.known.weights, np.zeros(len(rows))]))
    return replace(state, clusters=tuple(clusters), known=known)


@grow.register
def _(state: FedGWCState, rows: Ids) -> FedGWCState:
    first = len(state.sampled)
    clusters = [with_members(c, _joined(c.members, rows == i, first)) for i, c in enumerate(state.clusters)]
    return replace(state, clusters=tuple(clusters), sampled=np.concatenate([state.sampled, np.zeros(len(rows), np.int64)]))


def _joined(members: Ids, joins: Any, first: int) -> Ids:
    return np.concatenate([members, first + np.flatnonzero(joins)])  # numbers grow, so members stay sorted


def _padded(updates: Tensor, n: int) -> Tensor:
    return torch.cat([updates, updates.new_zeros(n, updates.shape[1])])
