"""IFCA (Ghosh, Chung, Yin and Ramchandran, 2020): k models chosen by loss.

Every client trains the one that fits its data best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from torch import Tensor

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.groups import Groups, GroupState, Parents, Plan, Round, everybody, most_common
from fedgwc.core.protocols import Engine, losses_under
from fedgwc.core.sampling import check_initial_models, check_models
from fedgwc.core.search import Between
from fedgwc.core.tensors import stack_rows
from fedgwc.core.types import Ids, Rng


@dataclass(frozen=True)
class IFCAState(GroupState):
    chosen: Ids  # [N] the model each client chose last; -1: it has not taken part yet

    def labels(self) -> Ids:
        """Return each client's model [N].

        A client that never took part is served by the model that most of the others chose.
        """
        return most_common(self.chosen)


@dataclass(frozen=True)
class IFCA(Groups[IFCAState]):
    """Algorithm 1 with model averaging.

    The k models must start apart: `init` takes them as [k, D].
    """

    k: Annotated[int, "models; the number of groups has to be known or tried", Between(2, 8)] = 2

    def __post_init__(self) -> None:
        check_models(self.k, "ifca k", "models")

    @property
    def n_models(self) -> int:
        return self.k

    def init(self, model: Tensor, n_clients: int, rate: float) -> tuple[Sequence[Tensor], IFCAState]:
        return check_initial_models(model, self.k, "ifca").unbind(), IFCAState(np.full(n_clients, -1, np.int64))

    def plan(self, state: IFCAState, servers: Sequence[Server], rate: float, engine: Engine, rng: Rng) -> Plan | None:
        models = stack_rows([s.theta for s in servers])
        cohort, choice = best_models(everybody(len(state.chosen), rate, rng), models, engine)
        return Plan(cohort, models, choice) if len(cohort) else None

    def regroup(self, state: IFCAState, round: Round) -> tuple[IFCAState, Ids, Parents]:
        # A choice counts once its training has arrived: a client that fails leaves no trace at all.
        clients, answered = round.plan.clients, np.isin(round.plan.clients, round.updates.clients)
        chosen = state.chosen.copy()
        chosen[clients[answered]] = round.plan.which[answered]
        # Over Flower somebody may have stood in who never chose.
        groups = np.where(chosen < 0, state.labels(), chosen)
        return IFCAState(chosen), groups[round.updates.clients], None

    def grow(self, state: IFCAState, rows: Ids) -> tuple[IFCAState, Parents]:
        return IFCAState(np.concatenate([state.chosen, rows])), None


def best_models(cohort: Ids, models: Tensor, engine: Engine) -> tuple[Ids, Ids]:
    """Ask clients for the model with their smallest training loss.

    Returns who answered, and their choices.
    """
    clients, losses = losses_under(models, cohort, engine)
    # A model that has diverged for a client (loss NaN) is the worst choice, not numpy's first one.
    return clients, np.where(np.isnan(losses), np.inf, losses).argmin(1)
