"""FedGWC, Algorithm 2: a division by hand, rounds against the pure functions of Eq. 1 to 3, cohorts, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedgwc.algorithms import ALGORITHMS, RELEASE
from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.fedgwc.algorithm import FedGWC
from fedgwc.algorithms.fedgwc.interactions import update_interactions, update_weights
from fedgwc.algorithms.fedgwc.rewards import gaussian_rewards
from fedgwc.algorithms.fedgwc.splits import PaperSplit
from fedgwc.algorithms.fedgwc.state import Cluster, FedGWCState
from fedgwc.algorithms.method import Method, MethodState
from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats, Ids, Rng, Updates
from fedgwc.core.work import Work

from ..clients import Clients, begin, counts, play, thetas, vector

State = MethodState[FedGWCState]
NEVER = PaperSplit(eps=1e-300)


def leaves(*sizes: int) -> FedGWCState:
    """A federation that has already been divided into clusters of these sizes, one after the other."""
    ends = np.cumsum(sizes)
    clusters = [
        replace(Cluster.root(K, 0.0), id=i, members=np.arange(end - K, end))
        for i, (end, K) in enumerate(zip(ends, sizes, strict=True))
    ]
    return FedGWCState(tuple(clusters), (), np.zeros(ends[-1], np.int64), len(sizes))


def state_with(groups: FedGWCState) -> State:
    return MethodState(tuple(Server(vector(0)) for _ in groups.clusters), groups)


# By hand


def test_four_clients_by_hand() -> None:
    """Losses 2, 2, 2, 6: mean 3, variance 4, so rewards exp(-1/8) for the first three and exp(-9/8) for the last (Eq. 1).

    Everybody is there in every round, so rows of P are 0.1, then 0.19 times these (Eq. 3). The mse is about 0.9, then 0.81, and
    falls below eps = 0.85 in the second round. Three clients have equal rows, and Davies-Bouldin finds the fourth.
    """
    r = np.exp([-1 / 8, -1 / 8, -1 / 8, -9 / 8])
    engine = Clients([0, 0, 0, 8], levels=[2, 2, 2, 6])
    method = Method(FedGWC(split=PaperSplit(eps=0.85)), rate=1.0)
    _, first, second, third = play(method, engine, begin(method, vector(5), 4), 3)

    [root] = first.groups.clusters
    np.testing.assert_allclose(root.P, 0.1 * np.tile(r[:, None], 4))
    np.testing.assert_allclose(root.gamma, 0.1 * r)  # Eq. 2
    assert root.mse == pytest.approx(0.9 + 0.1 * np.mean((0.1 * r) ** 2))
    assert root.visits.tolist() == np.ones((4, 4)).tolist()

    odd, others = sorted(second.groups.clusters, key=lambda c: len(c.members))
    assert (odd.members.tolist(), others.members.tolist()) == ([3], [0, 1, 2])
    assert {(c.parent, c.born, c.mse) for c in (odd, others)} == {(0, 2, 1.0)}
    np.testing.assert_allclose(others.P, 0.19 * np.exp(-1 / 8))  # divided along with the cluster
    assert thetas(second) == [2, 2]  # everybody's mean of 0, 0, 0 and 8, with which both go on
    assert sorted(thetas(third)) == [0, 8]
    [split] = second.groups.splits
    assert (split.ended, split.P is None, third.groups.splits[0].P) == (2, False, None)


@pytest.mark.parametrize(
    ("statistics", "normalise", "expected"),
    [
        ("plain", False, [math.exp(-1 / 2), 1, math.exp(-1 / 2)]),  # losses 1, 2, 3: mean 2, variance 1
        ("plain", True, np.array([math.exp(-1 / 2), 1, math.exp(-1 / 2)]) / (1 + 2 * math.exp(-1 / 2))),
        # By 1, 1 and 2 samples: mean 9/4, variance (25 + 1 + 2 * 9) / 64 = 11/16; exp(-25/22), exp(-1/22), exp(-9/22).
        ("weighted", False, np.exp([-25 / 22, -1 / 22, -9 / 22])),
    ],
)
def test_rewards_by_hand(statistics: Any, normalise: bool, expected: Any) -> None:
    groups = FedGWC(alpha=1.0, statistics=statistics, normalise=normalise, split=NEVER)
    engine, method = Clients([0, 0, 0], sizes=[1, 1, 2], levels=[1, 2, 3]), Method(groups, rate=1.0)
    [cluster] = method.round(begin(method, vector(0), 3), engine, Rng(0, 1)).groups.clusters
    np.testing.assert_allclose(cluster.gamma, expected)
    np.testing.assert_allclose(cluster.gamma2, np.square(expected))
    np.testing.assert_allclose(cluster.P, np.tile(np.reshape(expected, (3, 1)), 3))


def test_the_release_moves_by_the_share_that_answered_and_starts_from_one_over_k_squared() -> None:
    assert (FedGWC().step(3, 12), RELEASE.step(3, 12)) == (0.1, 0.25)
    assert begin(Method(RELEASE), vector(0), 5).groups.clusters[0].P.tolist() == np.full((5, 5), 1 / 25).tolist()


# Eq. 1 to 3, in any federation

SETTINGS: list[dict[str, Any]] = [
    {},
    {"alpha": 0.3, "start": "1/K^2"},
    {"alpha": 0.0},  # cohort size / cluster size
    {"normalise": True},
]


class Random:
    """Any losses, or rewards in their place; a fifth of the clients, or of their rewards, does not arrive."""

    def __init__(self, tell: Literal["losses", "rewards"], seed: int) -> None:
        self.tell, self.rng = tell, np.random.default_rng(seed)
        self.heard: list[tuple[Ids, Floats]] = []  # who was heard in each round, and the losses [n, 3] or rewards [n]

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        n, came = len(clients), self.rng.random(len(clients)) < 0.8
        losses, rewards = self.rng.exponential(size=(n, 3)), self.rng.random(n)
        updates = Updates(clients, models[which], torch.from_numpy(losses), torch.ones(n))
        self.heard.append((clients[came], (losses if self.tell == "losses" else rewards)[came]))
        if self.tell == "losses":
            return updates.rows(np.flatnonzero(came))
        given = torch.from_numpy(np.where(came, rewards, np.nan))
        return replace(updates, losses=torch.empty(n, 0), rewards=given)


def by_equations(a: FedGWC, c: Cluster, start: float, heard: list[tuple[Ids, Floats]]) -> tuple[Floats, Floats, Floats]:
    """(P, gamma, gamma2) of a cluster after rounds in which these clients were heard."""
    K = len(c.members)
    P, gamma, gamma2 = np.full((K, K), start), np.zeros(K), np.zeros(K)
    for clients, told in heard:
        here = np.isin(clients, c.members)
        if here.sum() < 3:
            continue
        at, told = c.members.searchsorted(clients[here]), told[here]
        rewards = gaussian_rewards(told, normalise=a.normalise) if told.ndim == 2 else told
        rewards = rewards / rewards.sum() if a.normalise and told.ndim == 1 else rewards
        alpha = a.alpha or len(at) / K
        P = update_interactions(P, at, rewards, alpha)
        gamma, gamma2 = (update_weights(g, at, r, alpha) for g, r in ((gamma, rewards), (gamma2, rewards**2)))
    return P, gamma, gamma2


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
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
    """Of clusters of any sizes at once, exactly; a reward that did not arrive leaves its client out."""
    groups = FedGWC(**settings, split=NEVER)
    start = 0.0 if groups.start == "zero" else 0.01
    made = leaves(*sizes)
    owner = np.random.default_rng(seed).permutation(np.repeat(range(len(sizes)), sizes))
    known = [replace(c, members=np.flatnonzero(owner == c.id), P=np.full_like(c.P, start)) for c in made.clusters]
    state: Any = state_with(replace(made, clusters=tuple(known)))
    engine: Any = Random(tell, seed)
    for t in range(n_rounds):
        state = Method(groups, rate).round(state, engine, Rng(seed, t + 1))
    for c in state.groups.clusters:
        for ours, expected in zip((c.P, c.gamma, c.gamma2), by_equations(groups, c, start, engine.heard), strict=True):
            np.testing.assert_array_equal(ours, expected)


# Cohorts


@pytest.mark.parametrize(
    ("settings", "rate", "expected"),
    [
        ({}, 0.1, [6, 3, 3, 2]),
        ({"sampling": "uniform"}, 0.1, [6, 3, 3, 2]),
        ({"cohort": "same"}, 0.1, [9, 9, 4, 2]),
        ({}, 1.0, [60, 25, 4, 2]),
    ],
)
def test_cohorts_by_cluster(settings: dict[str, Any], rate: float, expected: list[int]) -> None:
    """Of clusters of 60, 25, 4 and 2 a tenth each, at least 3, at most all; or a tenth of the 91 of each."""
    engine = Clients(np.zeros(91))
    Method(FedGWC(**settings), rate).round(state_with(leaves(60, 25, 4, 2)), engine, Rng(0, 1))
    [(clients, which, _)] = engine.trained  # all clusters in one call
    np.testing.assert_array_equal(which, np.repeat([0, 1, 2, 3], [60, 25, 4, 2])[clients])
    assert counts(which) == expected
    assert len(np.unique(clients)) == len(clients)


def test_what_a_cluster_draws_does_not_depend_on_the_others() -> None:
    engine, method, both = Clients(np.zeros(80)), Method(FedGWC(sampling="uniform")), leaves(40, 40)
    plans = [
        method.who.plan(replace(both, clusters=cs), [Server(vector(0))] * len(cs), 0.1, engine, Rng(0, 5))
        for cs in (both.clusters, both.clusters[1:])
    ]
    both_drawn, alone = plans
    assert both_drawn is not None
    assert alone is not None
    np.testing.assert_array_equal(both_drawn.clients[both_drawn.which == 1], alone.clients)


@pytest.mark.parametrize(("sampling", "least", "most"), [("rare-first", 0, 1), ("uniform", 3, 99)])
def test_rare_first_sampling_evens_out_participation(sampling: Any, least: float, most: float) -> None:
    """300 rounds of 5 of 50 clients: 30 each on average."""
    method = Method(FedGWC(sampling=sampling, split=NEVER))
    sampled = play(method, Clients(np.zeros(50), levels=np.arange(50)), begin(method, vector(0), 50), 300)[-1].groups.sampled
    assert sampled.sum() == 300 * 5
    assert least < sampled.std() < most


# Few, and too many


def test_who_does_not_answer_is_not_counted() -> None:
    method, engine = Method(FedGWC(split=NEVER), 1.0), Clients(np.zeros(6), levels=np.arange(6), silent=(4,))
    last = play(method, engine, begin(method, vector(0), 6), 3)[-1].groups
    assert last.sampled.tolist() == [3, 3, 3, 3, 0, 3]
    assert last.clusters[0].visits.diagonal().tolist() == [3, 3, 3, 3, 0, 3]
    assert not last.clusters[0].P[4].any()


def test_two_answers_train_the_model_and_leave_p_alone() -> None:
    method, engine = Method(FedGWC(), 1.0), Clients([1, 1, 1, 1, 3], silent=(0, 1, 2))
    state = method.round(begin(method, vector(0), 5), engine, Rng(0, 1))
    assert thetas(state) == [2]
    assert not state.groups.clusters[0].P.any()
    assert state.groups.clusters[0].mse == 1


@pytest.mark.parametrize("name", ["fedgwc", "fedgwc-release"])
def test_more_clients_than_pairs_fit_are_refused(name: str) -> None:
    algorithm: Any = ALGORITHMS[name]
    with pytest.raises(InputError, match=r"50,000 clients .*pairs_up_to=20000.* 27\.9 GiB; set pairs_up_to=50000"):
        begin(algorithm, torch.zeros(1), 50_000)
    assert algorithm.warnings(20_000) == []
    assert algorithm.room(begin(algorithm, torch.zeros(1), 10)) == 19_990


@pytest.mark.parametrize("alpha", [-0.1, 1.5])
def test_an_impossible_step_is_refused(alpha: float) -> None:
    with pytest.raises(InputError, match=r"alpha must be in \[0, 1\]"):
        FedGWC(alpha=alpha)
