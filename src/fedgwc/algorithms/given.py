"""Groups that are known beforehand, such as regions or kinds of devices: a model for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from torch import Tensor

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.groups import Groups, GroupState, Parents, Plan, Round, everybody
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Engine
from fedgwc.core.tensors import stack_rows
from fedgwc.core.types import Ids, Rng


@dataclass(frozen=True)
class GivenState(GroupState):
    of_clients: Ids  # [N]

    def labels(self) -> Ids:
        return self.of_clients


@dataclass(frozen=True)
class Given(Groups[GivenState]):
    """Groups given by their users: a cohort of all clients, each training its group's model."""

    labels: Annotated[tuple[int, ...], "each client's group, counted from 0; empty: one group of all"] = ()

    def init(self, model: Tensor, n_clients: int, rate: float) -> tuple[Sequence[Tensor], GivenState]:
        labels = np.array(self.labels or [0] * n_clients, np.int64)
        groups = np.unique(labels)
        if len(labels) != n_clients or not np.array_equal(groups, np.arange(len(groups))):
            raise InputError(
                f"given.labels must have a group for each of the {n_clients} clients that train, numbered from 0 without gaps; "
                f"got {len(labels)} labels of the groups {', '.join(map(str, groups[:10]))}"
            )
        return [model] * len(groups), GivenState(labels)

    def plan(self, state: GivenState, servers: Sequence[Server], rate: float, engine: Engine, rng: Rng) -> Plan:
        cohort = everybody(len(state.of_clients), rate, rng)
        return Plan(cohort, stack_rows([s.theta for s in servers]), state.of_clients[cohort])

    def regroup(self, state: GivenState, round: Round) -> tuple[GivenState, Ids, Parents]:
        return state, state.of_clients[round.updates.clients], None

    def grow(self, state: GivenState, rows: Ids) -> tuple[GivenState, Parents]:
        return GivenState(np.concatenate([state.of_clients, rows])), None

    def warnings(self, n_clients: int) -> list[str]:
        return [] if self.labels else ["given has no labels, so all clients are one group; set given.labels=[0, 0, 1, ...]"]
