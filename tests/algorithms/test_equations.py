"""Rounds of FedGWC compute Eq. 2 and Eq. 3 as the pure functions do, for which tests/test_theory.py has the paper's theorems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.auto.algorithm import FedGWC
from fedgwc.algorithms.auto.beginnings import fresh
from fedgwc.algorithms.auto.readings import gaussian_rewards
from fedgwc.algorithms.auto.state import Cluster, FedGWCState
from fedgwc.algorithms.fedgwc.interactions import update_interactions, update_weights
from fedgwc.core.types import Floats, Ids, Rng, Updates

NO_ATTEMPT: dict[str, Any] = {"when": "visits", "visits": 1000}
SETTINGS: list[dict[str, Any]] = [
    {},  # windows, which last longer than the rounds below
    {**NO_ATTEMPT, "step": "1/n", "start": "1/K^2"},
    {**NO_ATTEMPT, "step": "constant", "alpha": 0.3},
    {**NO_ATTEMPT, "step": "constant", "start": "1/K^2"},
    {**NO_ATTEMPT, "step": "cohort"},
    {**NO_ATTEMPT, "step": "cohort", "start": "1/K^2"},
]


class Random:
    """Any losses, or rewards in their place; a fifth of the clients, or of their rewards, does not arrive."""

    def __init__(self, tell: Literal["losses", "rewards"], seed: int) -> None:
        self.tell, self.rng = tell, np.random.default_rng(seed)
        self.heard: list[tuple[Ids, Floats]] = []  # who was heard in each round, and the losses [n, 3] or rewards [n]

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        n, came = len(clients), self.rng.random(len(clients)) < 0.8
        losses, rewards = self.rng.exponential(size=(n, 3)), self.rng.random(n)
        updates = Updates(clients, models[which], torch.from_numpy(losses), torch.ones(n))
        self.heard.append((clients[came], (losses if self.tell == "losses" else rewards)[came]))
        if self.tell == "losses":
            return updates.rows(np.flatnonzero(came))
        given = torch.from_numpy(np.where(came, rewards, np.nan))
        return replace(updates, losses=torch.empty(n, 0), rewards=given)


def clusters_of(algorithm: FedGWC, sizes: list[int]) -> FedGWCState:
    """A federation in clusters of these sizes, in any order."""
    owner = np.random.default_rng(0).permutation(np.repeat(range(len(sizes)), sizes))
    members = [np.flatnonzero(owner == i) for i in range(len(sizes))]
    made = [fresh(algorithm, i, None, 0, m, Server(torch.zeros(1)), {}, True) for i, m in enumerate(members)]
    return FedGWCState(tuple(made), (), np.zeros(sum(sizes), np.int64), len(sizes))


def by_equations(a: FedGWC, c: Cluster, heard: list[tuple[Ids, Floats]]) -> tuple[Floats, Floats, Floats]:
    """(P, gamma, gamma2) of a cluster after rounds in which these clients were heard."""
    K = len(c.members)
    P, gamma, gamma2 = np.full((K, K), 0.0 if a.start == "zero" else 1 / K**2), np.zeros(K), np.zeros(K)
    visits = np.zeros((K, K), np.int64)
    for clients, told in heard:
        here = np.isin(clients, c.members)
        if here.sum() < 3:
            continue
        at, told = c.members.searchsorted(clients[here]), told[here]
        rewards = gaussian_rewards(told) if told.ndim == 2 else told
        pairs = np.ix_(at, at)
        visits[pairs] += 1
        steps = {"1/n": 1 / visits[pairs], "constant": np.full((len(at),) * 2, a.alpha)}
        alpha = steps.get(a.step, np.full((len(at),) * 2, len(at) / K))
        P = update_interactions(P, at, rewards, alpha)
        gamma, gamma2 = (update_weights(g, at, r, alpha.diagonal()) for g, r in ((gamma, rewards), (gamma2, rewards**2)))
    return P, gamma, gamma2


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s.get('step', 'windows')}-{s.get('start', 'zero')}")
@pytest.mark.parametrize("tell", ["losses", "rewards"])
@hypothesis.settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    rate=st.sampled_from([0.3, 0.6, 1.0]),
    n_rounds=st.integers(1, 8),
    seed=st.integers(0, 10**6),
)
def test_rounds_follow_the_equations(
    settings: dict[str, Any], tell: Literal["losses", "rewards"], sizes: list[int], rate: float, n_rounds: int, seed: int
) -> None:
    """Of clusters of any sizes at once, exactly."""
    algorithm, engine = FedGWC(rate=rate, **settings), Random(tell, seed)
    state = clusters_of(algorithm, sizes)
    for t in range(n_rounds):
        state = algorithm.round(state, engine, Rng(seed, t + 1))
    assert [len(c.members) for c in state.clusters] == sizes
    for c in state.clusters:
        for ours, expected in zip((c.P, c.gamma, c.gamma2), by_equations(algorithm, c, engine.heard), strict=True):
            np.testing.assert_array_equal(ours, expected)


@given(n=st.integers(3, 9), n_rounds=st.integers(1, 9), seed=st.integers(0, 10**6))
def test_by_client_the_diagonal_follows_them(n: int, n_rounds: int, seed: int) -> None:
    """In the first 9 rounds, before a window can end."""
    algorithm, engine = FedGWC(rate=0.6, pairs_up_to=2), Random("losses", seed)
    state = algorithm.init(torch.zeros(1), n)
    for t in range(n_rounds):
        state = algorithm.round(state, engine, Rng(seed, t + 1))
    [c] = state.clusters
    P, gamma, gamma2 = by_equations(algorithm, c, engine.heard)
    for ours, expected in ((c.P, P.diagonal()), (c.gamma, gamma), (c.gamma2, gamma2)):
        np.testing.assert_array_equal(ours, expected)
