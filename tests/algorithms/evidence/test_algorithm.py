"""Evidence over rounds: divides where there are groups, moves and merges, and survives liars and missing samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedgwc.algorithms.evidence.algorithm import Evidence
from fedgwc.algorithms.evidence.state import EvidenceState
from fedgwc.algorithms.groups import Plan, Round
from fedgwc.algorithms.method import Method
from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats, Ids, Rng, Scores, Split, Updates
from fedgwc.core.work import Work
from tests.algorithms.clients import Clients, begin

WIDTH = 30


class Noisy(Clients):
    """Clients that never quite reach where they are."""

    def train(self, clients: Ids, models: torch.Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        updates = super().train(clients, models, which, seed, work)
        rng = np.random.default_rng(seed)
        return replace(updates, models=updates.models + 0.2 * torch.from_numpy(rng.standard_normal((len(clients), WIDTH))))


class WithoutValidation(Noisy):
    def evaluate(self, clients: Ids, models: torch.Tensor, which: Ids, split: Split = "test") -> Scores:
        if split == "validation":
            raise InputError("the federation has no validation samples")
        return super().evaluate(clients, models, which, split)


def points(truth: Ids, apart: float) -> Floats:
    rng = np.random.default_rng(5)
    return apart * rng.standard_normal((truth.max() + 1, WIDTH))[truth] + 0.1 * rng.standard_normal((len(truth), WIDTH))


def played(engine: Clients, n: int, rounds: int, rate: float = 1.0) -> tuple[Any, list[Any]]:
    method = Method(Evidence(), rate=rate)
    state = begin(method, torch.zeros(WIDTH, dtype=torch.float64), n)
    decisions: list[Any] = []
    for number in range(1, rounds + 1):
        state = method.round(state, engine, Rng(3, number))
        decisions += method.observe(state).decisions
    return state, decisions


@pytest.mark.parametrize(("apart", "groups"), [(0.15, 1), (0.2, 3)])
def test_without_validation_samples_a_cut_waits_until_it_is_sure(apart: float, groups: int) -> None:
    method, engine = Method(Evidence(), rate=1.0), WithoutValidation(points(np.arange(15) % 3, apart), reach=0.5)
    state, waited = begin(method, torch.zeros(WIDTH, dtype=torch.float64), 15), 0
    for number in range(1, 41):
        state = method.round(state, engine, Rng(3, number))
        waited += any(g.trial is not None for g in state.groups.groups)
    assert waited
    assert len(state.groups.groups) == groups


@pytest.mark.parametrize("engine", [Noisy, WithoutValidation])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_three_groups_of_five(engine: type[Clients], rate: float) -> None:
    truth = np.arange(15) % 3
    state, decisions = played(engine(points(truth, 3.0), reach=0.5), 15, 40, rate)
    labels = state.groups.labels()
    assert {tuple(np.flatnonzero(labels == i)) for i in range(3)} == {tuple(np.flatnonzero(truth == g)) for g in range(3)}
    assert "pull" in decisions[0]["why"]
    assert "chance of this without groups" in decisions[0]["why"]


@pytest.mark.parametrize("n", [6, 15])
def test_one_group_stays_one(n: int) -> None:
    state, decisions = played(Noisy(points(np.zeros(n, np.int64), 3.0), reach=0.5), n, 60)
    assert (len(state.servers), decisions) == (1, [])


def of_two(label: list[int], ballots: Floats) -> tuple[Evidence, EvidenceState, Round]:
    """A state of two groups that are some rounds old, in a round that nobody's turn is due in but client 0's."""
    n = len(label)
    evidence = Evidence()
    _, state = evidence.init(torch.zeros(1), n, 1.0)
    born = replace(state.groups[0], id=1), replace(state.groups[0], id=2)
    turns = np.full(n, 3)
    turns[0] = 4
    state = replace(state, groups=born, label=np.array(label), ballots=ballots, turns=turns, validates=True)
    models = torch.tensor([[0.0], [10.0]], dtype=torch.float64)
    plan = Plan(np.arange(n), models, np.array(label))
    engine = Clients(np.array([10.0, *np.where(np.array(label[1:]) == 1, 10.0, 0.0)]))
    return evidence, state, Round(plan, engine.train(plan.clients, models, plan.which, 0), np.ones(n), 1.0, Rng(0, 9), engine)


def test_a_client_goes_where_its_held_out_samples_are_likelier() -> None:
    """Client 0 is at 10 and among those at 0."""
    evidence, state, round = of_two([0, 0, 0, 0, 1, 1, 1, 1], np.full((8, 2), np.nan))
    state, parents = evidence._balloted(state, round, np.arange(2))
    assert (state.label.tolist(), parents.tolist()) == ([1, 0, 0, 0, 1, 1, 1, 1], [0, 1])


def test_groups_that_suit_all_alike_are_merged() -> None:
    """Of sixteen clients eight prefer their own model: too few to be three in four."""
    label = [0] * 8 + [1] * 8
    ballots = np.zeros((16, 2))
    ballots[np.arange(16), label] = np.tile([0.1, -0.1], 8)
    evidence, state, round = of_two(label, ballots)
    state, parents = evidence._merged(state, round, np.arange(2))
    assert (len(state.groups), state.label.tolist(), len(parents)) == (1, [0] * 16, 1)
    assert "suits" in state.decisions[0].why


def test_liars_divide_nobody() -> None:
    """Huge and broken updates weigh no more than others."""
    truth = np.zeros(12, np.int64)

    class Lying(Noisy):
        def train(self, clients: Ids, models: torch.Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
            updates = super().train(clients, models, which, seed, work)
            factor = torch.where(torch.from_numpy(clients) == 0, 1e3, 1.0)[:, None].double()
            return replace(updates, models=updates.models * factor)

    state, _ = played(Lying(points(truth, 3.0), reach=0.5), 12, 30)
    assert len(state.servers) == 1


@pytest.mark.parametrize("wrong", [{"sketch": 0}, {"min_size": 1}, {"level": 0.0}, {"level": 1.0}])
def test_impossible_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="evidence sketch must be"):
        Evidence(**wrong)
