"""IFCA (Ghosh, Chung, Yin and Ramchandran, 2020): k models chosen by loss.

Every client trains the one that fits its data best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from torch import Tensor

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.groups import Groups, GroupState, Parents, Plan, Round, everybody, most_common
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Engine, Observation, losses_under
from fedgwc.core.sampling import check_initial_models, check_models
from fedgwc.core.search import Between
from fedgwc.core.tensors import stack_rows
from fedgwc.core.types import Floats, Ids, Rng


@dataclass(frozen=True)
class Tried:
    """The best start so far; its models are the first k."""

    chosen: Ids  # [N] as of the state
    loss: float


@dataclass(frozen=True)
class IFCAState(GroupState):
    """The clients' choices, and while several starts are tried what is known of them.

    The models are those of the best start so far, if any has been tried, then of the present one, then of those to come.
    """

    chosen: Ids  # [N] the model of the present start that each client chose last; -1: it has not taken part yet
    trial: int = 0  # rounds of trials so far, of all starts
    losses: tuple[float, ...] = ()  # the present start's mean training loss in each round that counts
    best: Tried | None = None  # None: the first start is tried, or trials are over
    unserving: int = 0  # models of the starts that are not the best so far

    def labels(self) -> Ids:
        """Return each client's model [N], of the best start that has been tried.

        A client that never took part is served by the model that most of the others chose.
        """
        return most_common(self.chosen if self.best is None else self.best.chosen)

    def n_unserving(self) -> int:
        return self.unserving

    def observe(self) -> Observation:
        """Report the training loss of the best start, while there are several."""
        return Observation() if self.best is None else Observation({"start_loss": self.best.loss})


@dataclass(frozen=True)
class IFCA(Groups[IFCAState]):
    """Algorithm 1 with model averaging, restarted.

    The k models must start apart, and whether all groups are found depends on where: so the first `starts` x `settle` rounds
    try several starts, one after the other with the same cohorts. The one with the lowest training loss goes on.
    """

    k: Annotated[int, "models; the number of groups has to be known or tried", Between(2, 8)] = 2
    starts: Annotated[int, "initialisations that are tried; 1: none is"] = 5
    settle: Annotated[int, "rounds that each of several starts is trained before they are compared"] = 10

    def __post_init__(self) -> None:
        check_models(self.k, "ifca k", "models")
        if min(self.starts, self.settle) < 1:
            raise InputError(
                f"ifca starts and settle must be at least 1, got {self.starts} and {self.settle}; one start is no trial"
            )
        check_models(self.n_models, "ifca k times starts", "models")

    @property
    def n_models(self) -> int:
        return self.k * self.n_starts

    @property
    def n_starts(self) -> int:
        """Return the number of starts; one model needs none but the first."""
        return self.starts if self.k > 1 else 1

    def init(self, model: Tensor, n_clients: int, rate: float) -> tuple[Sequence[Tensor], IFCAState]:
        who = f"ifca with k={self.k}" + (f" and {self.n_starts} starts" if self.n_starts > 1 else "")
        models = check_initial_models(model, self.n_models, who).unbind()
        return models, IFCAState(np.full(n_clients, -1, np.int64), unserving=len(models) - self.k)

    def plan(self, state: IFCAState, servers: Sequence[Server], rate: float, engine: Engine, rng: Rng) -> Plan | None:
        first = self._first(state)
        models = stack_rows([s.theta for s in servers[first : first + self.k]])
        draw = Rng(rng.seed, 1 + state.trial % self.settle) if self._trying(state) else rng
        clients, losses = losses_of(everybody(len(state.chosen), rate, draw), models, engine)
        return Plan(clients, models, losses.argmin(1), losses.min(1)) if len(clients) else None

    def regroup(self, state: IFCAState, round: Round) -> tuple[IFCAState, Ids, Parents]:
        # A choice counts once its training has arrived: a client that fails leaves no trace at all.
        clients, answered = round.plan.clients, np.isin(round.plan.clients, round.updates.clients)
        chosen = state.chosen.copy()
        chosen[clients[answered]] = round.plan.which[answered]
        # Over Flower somebody may have stood in who never chose.
        groups = self._first(state) + np.where(chosen < 0, most_common(state.chosen), chosen)
        return replace(state, chosen=chosen), groups[round.updates.clients], None

    def divide(self, state: IFCAState, round: Round, group: Ids) -> tuple[IFCAState, Parents]:
        """Count a trial's round; after the last keep the better start."""
        answered = np.isin(round.plan.clients, round.updates.clients)
        if round.plan.losses is None or not self._trying(state) or not answered.any():
            return state, None
        state = replace(state, trial=state.trial + 1)
        done = state.trial % self.settle
        if not 0 < done <= self.settle // 2:  # its second half
            state = replace(state, losses=(*state.losses, float(round.plan.losses[answered].mean())))
        return (state, None) if done else self._compared(state)

    def _compared(self, state: IFCAState) -> tuple[IFCAState, Parents]:
        """Let the better of two starts stay, and the next one begin."""
        best = Tried(state.chosen, float(np.mean(state.losses)) if state.losses else np.inf)
        first = self._first(state)
        next_first, to_come = first + self.k, self.k * (self.n_starts - state.trial // self.settle)
        if state.best is not None and state.best.loss <= best.loss:
            best, first = state.best, 0
        kept = [*range(first, first + self.k), *range(next_first, next_first + to_come)]
        if not to_come:
            return IFCAState(best.chosen, state.trial), kept
        return IFCAState(np.full_like(state.chosen, -1), state.trial, (), best, to_come), kept

    def _trying(self, state: IFCAState) -> bool:
        return self.n_starts > 1 and state.trial < self.n_starts * self.settle

    def _first(self, state: IFCAState) -> int:
        """Return the row of the present start's first model."""
        return 0 if state.best is None else self.k

    def grow(self, state: IFCAState, rows: Ids) -> tuple[IFCAState, Parents]:
        if state.best is None:
            return replace(state, chosen=np.concatenate([state.chosen, rows])), None
        best = replace(state.best, chosen=np.concatenate([state.best.chosen, rows]))
        return replace(state, chosen=np.concatenate([state.chosen, np.full_like(rows, -1)]), best=best), None


def losses_of(cohort: Ids, models: Tensor, engine: Engine) -> tuple[Ids, Floats]:
    """Ask clients for their training loss under every model.

    Returns who answered, and the losses [n, k].
    """
    clients, losses = losses_under(models, cohort, engine)
    # A model that has diverged for a client (loss NaN) is the worst choice, not numpy's first one.
    return clients, np.where(np.isnan(losses), np.inf, losses)
