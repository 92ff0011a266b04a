"""Local training without federation: the baseline that federated learning has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.groups import Groups, GroupState, Parents, Plan, Round, everybody
from fedgwc.core.protocols import Engine
from fedgwc.core.types import Ids, Rng


@dataclass(frozen=True)
class AloneState(GroupState):
    n_clients: int

    def labels(self) -> Ids:
        return np.arange(self.n_clients)


@dataclass(frozen=True)
class Alone(Groups[AloneState]):
    """Local training: every client is a group of its own.

    All start from one model, as many train per round as elsewhere, and nothing is averaged.
    """

    def init(self, model: Tensor, n_clients: int, rate: float) -> tuple[Sequence[Tensor], AloneState]:
        return [model] * n_clients, AloneState(n_clients)

    def plan(self, state: AloneState, servers: Sequence[Server], rate: float, engine: Engine, rng: Rng) -> Plan:
        cohort = everybody(state.n_clients, rate, rng)
        return Plan(cohort, torch.stack([servers[k].theta for k in cohort.tolist()]), np.arange(len(cohort)))

    def regroup(self, state: AloneState, round: Round) -> tuple[AloneState, Ids, Parents]:
        return state, round.updates.clients, None

    def grow(self, state: AloneState, rows: Ids) -> tuple[AloneState, Parents]:
        n_clients = state.n_clients
        return AloneState(n_clients + len(rows)), [*range(n_clients), *rows.tolist()]
