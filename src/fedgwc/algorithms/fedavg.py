"""FedAvg (McMahan et al., 2017): one group of all clients.

Its variants are settings of server and clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.groups import Groups, GroupState, Parents, Plan, Round, everybody, plan_of
from fedgwc.core.protocols import Engine
from fedgwc.core.types import Ids, Rng


@dataclass(frozen=True)
class OneGroupState(GroupState):
    n_clients: int

    def labels(self) -> Ids:
        return np.zeros(self.n_clients, np.int64)


@dataclass(frozen=True)
class OneGroup(Groups[OneGroupState]):
    """One group of all clients: a sampled cohort trains it each round."""

    def init(self, model: Tensor, n_clients: int, rate: float) -> tuple[Sequence[Tensor], OneGroupState]:
        return [model], OneGroupState(n_clients)

    def plan(self, state: OneGroupState, servers: Sequence[Server], rate: float, engine: Engine, rng: Rng) -> Plan:
        return plan_of([everybody(state.n_clients, rate, rng)], servers)

    def regroup(self, state: OneGroupState, round: Round) -> tuple[OneGroupState, Ids, Parents]:
        return state, np.zeros(len(round.updates), np.int64), None

    def grow(self, state: OneGroupState, rows: Ids) -> tuple[OneGroupState, Parents]:
        return OneGroupState(state.n_clients + len(rows)), None
