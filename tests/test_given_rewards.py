"""Rewards that clients compute themselves, from statistics that they are given, in place of losses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedgwc.algorithms.auto.algorithm import FedGWC
from fedgwc.algorithms.auto.learning import learnt
from fedgwc.algorithms.auto.readings import first_losses, gaussian_rewards, loss_variances, rewards_around
from fedgwc.algorithms.auto.state import Cluster
from fedgwc.core.types import Rng, Updates


def test_rewards_around_given_statistics() -> None:
    """One deviation off gives exp(-1/2); a variance of 0 gives 1; a step that was not made does not count."""
    losses = np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 7.0]])
    got = rewards_around(losses, np.array([2.0, 0.0]), np.array([1.0, 0.0]))
    half = np.exp(-0.5)
    np.testing.assert_allclose(got, [(half + 1) / 2, 1.0, (half + 1) / 2])


@pytest.mark.parametrize("normalise", [False, True])
def test_rewards_that_clients_computed_give_the_same_interactions(normalise: bool) -> None:
    """A reward that did not arrive leaves its client out, and two are too few to learn from."""
    algorithm = FedGWC(normalise=normalise)

    def after_round(updates: Updates) -> Cluster:
        return learnt(algorithm, algorithm.init(torch.zeros(1), 5).clusters, updates, np.zeros(len(updates), int), Rng(0, 1))[0]

    clients, losses = np.array([0, 1, 3, 4]), torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    told = Updates(clients, torch.zeros(4, 1), losses, torch.ones(4))
    all_rewards = torch.from_numpy(gaussian_rewards(losses.numpy()))
    kept = replace(told, losses=torch.empty(4, 0), rewards=all_rewards)
    np.testing.assert_array_equal(after_round(told).P, after_round(kept).P)
    for lost, visited in (([2], [0, 1, 4]), ([1, 2], [])):
        rewards = all_rewards.clone()
        rewards[lost] = torch.nan
        after = after_round(replace(kept, rewards=rewards))
        assert np.flatnonzero(after.visits.diagonal()).tolist() == visited


def test_readings_of_the_cohort_are_heard_as_its_losses_would_be() -> None:
    """Where they are known; they follow their rows."""
    algorithm = FedGWC()

    def after_round(updates: Updates) -> Cluster:
        return learnt(algorithm, algorithm.init(torch.zeros(1), 5).clusters, updates, np.zeros(len(updates), int), Rng(0, 1))[0]

    clients, losses = np.array([0, 1, 3, 4]), torch.tensor([[4.0, 1.0], [8.0, 2.5], [9.0, 3.0], [3.0, 0.5]]).double()
    told = Updates(clients, torch.zeros(4, 1), losses, torch.ones(4))
    seen = torch.tensor([*loss_variances(losses.numpy()), *first_losses(losses.numpy())]).double()
    rewards = torch.from_numpy(gaussian_rewards(losses.numpy()))
    kept = replace(told, losses=torch.empty(4, 0), rewards=rewards, readings=seen.repeat(4, 1))
    open_, private = after_round(told), after_round(kept)
    for name in ("between", "within", "first", "second", "heard", "apart", "adrift"):
        assert getattr(private, name) == pytest.approx(getattr(open_, name))
        assert getattr(open_, name)
    for unknown in (None, torch.full((4, 4), torch.nan)):
        assert after_round(replace(kept, readings=unknown)).heard == 0
    numbered = replace(kept, readings=torch.arange(16.0).reshape(4, 4))
    of_two = numbered.of(np.array([1, 4])).readings
    assert of_two is not None
    assert of_two[:, 0].tolist() == [4.0, 12.0]
