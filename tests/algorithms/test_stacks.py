"""Clusters that learn together learn what each would alone."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.auto.algorithm import FedGWC
from fedgwc.algorithms.auto.beginnings import children
from fedgwc.algorithms.auto.learning import learnt
from fedgwc.algorithms.auto.stacks import cohorts_alike, count, entries
from fedgwc.algorithms.auto.state import Cluster, FedGWCState, changed, copied
from fedgwc.core.types import Rng, Updates

WAYS = {
    "auto": FedGWC(),
    "by client": FedGWC(pairs_up_to=2),
    "paper": ALGORITHMS["fedgwc"],
    "release": ALGORITHMS["fedgwc-release"],
    "draws": FedGWC(loss_samples=5),
}


def divided(algorithm: FedGWC, sizes: list[int]) -> FedGWCState:
    """A federation after a split into clusters of these sizes."""
    state = algorithm.init(torch.zeros(4, dtype=torch.float64), sum(sizes))
    born = children(algorithm, state.clusters[0], np.repeat(np.arange(len(sizes)), sizes), {}, 1, 0)
    return replace(state, clusters=tuple(born))


def answers(rng: np.random.Generator, members: list[np.ndarray], whole: bool, private: bool) -> tuple[Updates, np.ndarray]:
    """Of some members of each cluster, in any order."""
    cohorts = [rng.permutation(m)[: rng.integers(0, min(len(m), 5) + 1)] for m in members]
    clients, own = np.concatenate(cohorts), np.repeat(np.arange(len(cohorts)), [len(c) for c in cohorts])
    order = rng.permutation(len(clients))
    clients, own, n = clients[order], own[order], len(clients)
    losses = rng.normal(2, 0.3, (n, 4)).astype(np.float32)
    if not whole:
        losses[np.arange(4) >= rng.integers(1, 5, (n, 1))] = np.nan
    given = {}
    if private:
        rewards, readings = (torch.from_numpy(rng.random(shape)) for shape in (n, (n, 4)))
        rewards[rng.random(n) < 0.2] = torch.nan
        readings[rng.random(n) < 0.1] = torch.nan
        losses, given = losses[:, :0], {"rewards": rewards, "readings": readings}
    models, counts = torch.from_numpy(rng.normal(size=(n, 4))), torch.from_numpy(rng.integers(1, 30, n))
    return Updates(clients, models, torch.from_numpy(losses), counts, **given), own


@pytest.mark.parametrize("name", WAYS)
@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    whole=st.booleans(),
    private=st.booleans(),
)
def test_clusters_learn_together_what_each_learns_alone(name: str, seed: int, sizes: list[int], whole: bool, private: bool):
    algorithm, rng = WAYS[name], np.random.default_rng(seed)
    if algorithm.loss_samples:
        private = False
    together = divided(algorithm, sizes).clusters
    alone = copied(divided(algorithm, sizes)).clusters
    for t in range(1, 5):
        updates, own = answers(rng, [c.members for c in together], whole, private)
        together = tuple(learnt(algorithm, together, updates, own, Rng(0, t)))
        alone = tuple(by_itself(algorithm, c, updates.rows(np.flatnonzero(own == i)), t) for i, c in enumerate(alone))
        for one, other in zip(alone, together, strict=True):
            same(other, one)


def by_itself(algorithm: FedGWC, cluster: Cluster, updates: Updates, t: int) -> Cluster:
    [taught] = learnt(algorithm, [cluster], updates, np.zeros(len(updates), int), Rng(0, t))
    return taught


def same(other: Cluster, one: Cluster) -> None:
    torch.testing.assert_close(other.server.theta, one.server.theta, rtol=0, atol=1e-12)  # sums of another order
    for name in (f.name for f in fields(Cluster) if f.name != "server"):
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name), err_msg=name)


def test_cohorts_of_one_size_and_kind_go_together():
    """Clusters 0 and 3 have three answers each, 1 has two, 2 has none, and 4 has three but is of another kind."""
    own = np.array([0, 3, 3, 0, 1, 4, 0, 3, 1, 4, 4])
    found = [(places, rows.tolist()) for places, rows in cohorts_alike(own, "aaaab", least=3)]
    assert found == [([0, 3], [[0, 3, 6], [1, 2, 7]]), ([4], [[5, 9, 10]])]


def test_a_changed_cluster_is_as_replaced():
    [cluster] = FedGWC().init(torch.zeros(1), 4).clusters
    new = changed(cluster, {"mse": 0.25, "calm": 3})
    same(new, replace(cluster, mse=0.25, calm=3))
    assert (cluster.mse, cluster.calm) == (1.0, 0)


def test_counts_stop_where_their_type_ends():
    """Of two clusters at once, and in any order of memory."""
    visits = [np.array([[0, 32766], [32767, 5]], np.int16), np.asfortranarray(np.zeros((3, 3), np.int16))]
    for _ in range(3):
        count(visits, entries(np.array([[0, 1], [0, 2]]), np.array([2, 3])))
    assert visits[0].tolist() == [[3, 32767], [32767, 8]]
    assert visits[1].tolist() == [[3, 0, 3], [0, 0, 0], [3, 0, 3]]
