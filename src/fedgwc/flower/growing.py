"""A federation that grows: the state of any algorithm with clients added to it. Pure, as the algorithms are."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedgwc.algorithms.cfl import CFLState, Known
from fedgwc.algorithms.fedavg import FedAvgState
from fedgwc.algorithms.fedgwc_state import Cluster, FedGWCState, Window
from fedgwc.algorithms.fesem import FeSEMState
from fedgwc.algorithms.ifca import IFCAState
from fedgwc.core import Ids


@singledispatch
def grow(state: Any, rows: Ids) -> Any:
    """The state after clients N, N + 1, ... joined; rows [n] says which model of the clustering serves each of them."""
    raise TypeError(f"clients cannot join a running {type(state).__name__}; start with all of them, or register a `grow`")


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
    line = (0, n)
    before = c.before
    if before is not None:
        before = replace(before, **_padded_squares(before, n))
    return replace(
        c,
        members=members,
        gamma=np.pad(c.gamma, line),
        gamma2=np.pad(c.gamma2, line),
        before=before,
        **_padded_squares(c, n),
    )


def _padded_squares(seen: Cluster | Window, n: int) -> dict[str, Any]:
    """The matrices over pairs of members, with n more rows and columns."""
    named = {"P": seen.P, "visits": seen.visits, "sides": seen.sides}
    return {name: np.pad(a, ((0, n), (0, n))) for name, a in named.items() if a is not None}
