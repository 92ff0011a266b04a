"""The round of every method: group clients, train, aggregate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, get_args, get_type_hints

from torch import Tensor

from fedgwc.algorithms.aggregate import Aggregator, Server
from fedgwc.algorithms.groups import Groups, Parents, Round, S
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import Arrays, Engine, LearnsFrom, Observation
from fedgwc.core.sampling import Rate, check_rate
from fedgwc.core.settings import FLAT
from fedgwc.core.tensors import stack_rows
from fedgwc.core.types import Clustering, Ids, Rng
from fedgwc.core.work import Work


@dataclass(frozen=True)
class MethodState(Generic[S]):
    servers: tuple[Server, ...]  # a model, and its momentum, for each group
    groups: S


@dataclass(frozen=True)
class Method(Generic[S]):
    """A federated method as a composition: `Method(who=IFCA(k=3), server=Aggregator(momentum=0.9))`."""

    who: Groups[S] = field(metadata=FLAT)
    rate: Rate = 0.1
    server: Aggregator = field(default_factory=Aggregator)

    def __post_init__(self) -> None:
        check_rate(self.rate)

    @property
    def n_models(self) -> int | None:
        return self.who.n_models

    @property
    def learns_from(self) -> LearnsFrom:
        return self.who.learns_from

    def init(self, model: Tensor, n_clients: int, layout: Layout) -> MethodState[S]:
        models, groups = self.who.init(model, n_clients, self.rate)
        return MethodState(tuple(map(Server, models)), groups.with_layout(layout))

    def round(self, state: MethodState[S], engine: Engine, rng: Rng) -> MethodState[S]:
        return self.advance(replace(state, groups=state.groups.copied()), engine, rng)

    def advance(self, state: MethodState[S], engine: Engine, rng: Rng) -> MethodState[S]:
        """Run a round that may write into the arrays of the given state."""
        plan = self.who.plan(state.groups, state.servers, self.rate, engine, rng)
        if plan is None:
            return state
        updates = engine.train(plan.clients, plan.models, plan.which, rng.training, Work(round=rng.round))
        round = Round(plan, updates, self.server.shares(updates).numpy(), self.rate, rng, engine)
        groups, group, parents = self.who.regroup(state.groups, round)
        servers = self.server.steps(_heirs(state.servers, parents), updates, group)
        groups, parents = self.who.divide(groups, round, group)
        return MethodState(_heirs(servers, parents), groups)

    def clustering(self, state: MethodState[S]) -> Clustering:
        models = stack_rows([server.theta for server in state.servers[: self.n_clusters(state)]])
        return Clustering(models, state.groups.labels(), state.groups.numbers())

    def n_clusters(self, state: MethodState[S]) -> int:
        return len(state.servers) - state.groups.n_unserving()

    def cluster_numbers(self, state: MethodState[S]) -> Ids | None:
        return state.groups.numbers()

    @property
    def state_type(self) -> Any:
        """Return the type of its states.

        That of the groups' is written at their `init`.
        """
        return MethodState[get_args(get_type_hints(type(self.who).init)["return"])[1]]  # type: ignore[misc]

    def room(self, state: MethodState[S]) -> int | None:
        return self.who.room(state.groups)

    def grow(self, state: MethodState[S], rows: Ids) -> MethodState[S]:
        groups, parents = self.who.grow(state.groups, rows)
        return MethodState(_heirs(state.servers, parents), groups)

    # What a run's folder asks for

    def warnings(self, n_clients: int) -> list[str]:
        return self.who.warnings(n_clients)

    def observe(self, state: MethodState[S]) -> Observation:
        return state.groups.observe()

    def tree(self, state: MethodState[S]) -> list[dict[str, Any]]:
        return state.groups.tree()

    def matrices(self, state: MethodState[S]) -> Mapping[str, Arrays]:
        return state.groups.matrices()


def _heirs(servers: Sequence[Server], parents: Parents) -> tuple[Server, ...]:
    """Let each group go on from its parent's model and momentum."""
    return tuple(servers) if parents is None else tuple(servers[p] for p in parents)
