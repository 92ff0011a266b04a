"""The round that all methods share: a mean by samples, groups that inherit, and nobody who answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.aggregate import Aggregator, Server
from fedgwc.algorithms.alone import Alone
from fedgwc.algorithms.fedavg import OneGroup
from fedgwc.algorithms.groups import Groups, GroupState, Parents, Plan, Round, everybody, labels_of, plan_of
from fedgwc.algorithms.ifca import IFCA
from fedgwc.algorithms.method import Method
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Engine, state_type
from fedgwc.core.types import Ids, Rng
from fedgwc.io.state_file import pack

from .clients import Clients, begin, column, play, thetas, vector, velocities


def test_the_mean_counts_samples() -> None:
    """(3 * 0 + 1 * 4) / 4 = 1"""
    for preset, mean in (("fedavg", 1.0), ("fairavg", 2.0)):
        method = replace(ALGORITHMS[preset], rate=1.0)  # type: ignore[type-var]
        assert thetas(method.round(begin(method, vector(7), 2), Clients([0, 4], sizes=[3, 1]), Rng(0, 1))) == [mean]


@dataclass(frozen=True)
class HalvesState(GroupState):
    n_clients: int
    halved: bool = False

    def labels(self) -> Ids:
        return np.arange(self.n_clients) % (2 if self.halved else 1)


@dataclass(frozen=True)
class Halves(Groups[HalvesState]):
    """One group that falls into even and odd clients in the first round, before the server's step or after it."""

    when: Literal["before", "after"] = "before"

    def init(self, model: Tensor, n_clients: int, rate: float) -> tuple[Sequence[Tensor], HalvesState]:
        return [model], HalvesState(n_clients)

    def plan(self, state: HalvesState, servers: Sequence[Server], rate: float, engine: Engine, rng: Rng) -> Plan:
        clients = np.arange(state.n_clients)
        return plan_of([clients[state.labels() == i] for i in range(len(servers))], servers)

    def regroup(self, state: HalvesState, round: Round) -> tuple[HalvesState, Ids, Parents]:
        parents = [0, 0] if self.when == "before" and not state.halved else None
        state = replace(state, halved=state.halved or self.when == "before")
        return state, state.labels()[round.updates.clients], parents

    def divide(self, state: HalvesState, round: Round, group: Ids) -> tuple[HalvesState, Parents]:
        return replace(state, halved=True), None if state.halved else [0, 0]

    def grow(self, state: HalvesState, rows: Ids) -> tuple[HalvesState, Parents]:
        return replace(state, n_clients=state.n_clients + len(rows)), None


@pytest.mark.parametrize(
    ("when", "models", "momenta", "next_models"),
    [
        ("before", [2, 6], [2, 6], [3, 9]),  # each side's own mean; then 2 + (2 - 2) + 2 / 2 and 6 + (6 - 6) + 6 / 2
        ("after", [4, 4], [4, 4], [4, 8]),  # everybody's mean; then 4 + (2 - 4) + 4 / 2 and 4 + (6 - 4) + 4 / 2
    ],
)
def test_groups_inherit_model_and_momentum(
    when: Literal["before", "after"], models: list[float], momenta: list[float], next_models: list[float]
) -> None:
    method = Method(Halves(when), rate=1.0, server=Aggregator(momentum=0.5))
    _, first, second = play(method, Clients([2, 6]), begin(method, vector(0), 2), 2)
    assert (thetas(first), velocities(first)) == (models, momenta)
    assert thetas(second) == next_models


def test_a_group_nobody_answers_of_stays() -> None:
    method = Method(Alone(), rate=1.0, server=Aggregator(momentum=0.5))
    state = method.round(begin(method, vector(1), 3), Clients([2, 4, 6], silent=[1]), Rng(0, 1))
    assert (thetas(state), velocities(state)) == ([2, 1, 6], [1, None, 5])


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("fault", ["silent", "deaf"])
def test_nobody_answers_and_nothing_changes(name: str, fault: str) -> None:
    algorithm: Any = ALGORITHMS[name]
    n_models = getattr(algorithm, "n_models", None)
    first = begin(algorithm, vector(0) if n_models is None else column(*range(n_models)), 30)
    nobody: dict[str, Any] = {fault: range(30)}
    for state in play(algorithm, Clients(np.arange(30), **nobody), first, 3):
        assert pack(state) == pack(first)


def test_a_round_that_nobody_can_plan_trains_nobody() -> None:
    method, engine = Method(IFCA(k=2, starts=1)), Clients(np.arange(5), deaf=range(5))
    state = begin(method, column(0, 1), 5)
    assert method.round(state, engine, Rng(0, 1)).servers is state.servers
    assert engine.trained == []


def test_groups_are_asked_only_where_others_answer_than_were_planned() -> None:
    """Over Flower somebody may stand in."""
    plan = Plan(np.array([1, 3]), torch.zeros(2, 1), np.array([0, 1]))
    engine = Clients(np.zeros(5))
    updates = engine.train(plan.clients, plan.models, plan.which, 0)
    planned = Round(plan, updates, np.ones(2), 0.1, Rng(0, 1), engine)
    assert planned.groups_of(lambda: pytest.fail("not asked")).tolist() == [0, 1]
    other = replace(planned, updates=replace(updates, clients=np.array([1, 4])))
    assert other.groups_of(lambda: np.array([0, 0, 1, 1, 2])).tolist() == [0, 2]


def test_labels_and_cohorts_by_hand() -> None:
    assert labels_of([np.array([1, 3]), np.array([0]), np.array([2, 4])]).tolist() == [1, 0, 2, 0, 2]
    servers = [Server(vector(x)) for x in (5, 6, 7)]
    plan = plan_of([np.array([0, 4]), np.array([], np.int64), np.array([2])], servers)
    assert (plan.clients.tolist(), plan.which.tolist(), plan.models.tolist()) == ([0, 4, 2], [0, 0, 2], [[5], [6], [7]])
    assert len(everybody(100, 0.1, Rng(0, 1))) == 10


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5])
def test_impossible_rates(rate: float) -> None:
    with pytest.raises(InputError, match=r"rate must be in \(0, 1\]"):
        Method(OneGroup(), rate=rate)


def test_a_method_of_ones_own_types_its_state() -> None:
    assert str(state_type(Method(Halves()))).endswith(f"MethodState[{HalvesState.__module__}.HalvesState]")
