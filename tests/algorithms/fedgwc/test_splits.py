"""When a cluster is divided: the mse by hand, patience, and what a failed attempt leaves."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedgwc.algorithms.fedgwc.algorithm import FedGWC
from fedgwc.algorithms.fedgwc.splits import PaperSplit
from fedgwc.algorithms.fedgwc.state import Cluster
from fedgwc.algorithms.method import Method
from fedgwc.core.errors import InputError

from ..clients import Clients, begin, play, vector

ALIKE = 1e-12  # a beta at which all affinities are equal, so that no attempt divides


@pytest.mark.parametrize(
    ("mse_over", "expected"),
    [
        ("matrix", 0.9 + 0.1 * (4 * 0.25) / 16),  # four entries of 16 have changed by 1/2
        ("touched", 0.9 + 0.1 * (4 * 0.25) / 4),
    ],
)
def test_mse_by_hand(mse_over: Any, expected: float) -> None:
    watched = PaperSplit(mse_over=mse_over).watch(Cluster.root(4, 0.0), np.full((2, 2), 0.5), alpha=0.1)
    assert watched.mse == pytest.approx(expected)


def test_rounds_below_the_threshold_are_counted_and_one_above_it_starts_anew() -> None:
    split, cluster, seen = PaperSplit(eps=0.5), Cluster.root(4, 0.0), []
    for change in (0.0, 0.5, 0.5, 2.0, 0.5):
        cluster = split.watch(cluster, np.full((4, 4), change), alpha=1.0)
        seen.append(cluster.converged)
    assert seen == [1, 2, 3, 0, 1]  # squares 0, 1/4, 1/4, 4, 1/4


def attempts(split: PaperSplit, n_rounds: int, rate: float = 0.1, n_clients: int = 30) -> list[int]:
    """The rounds in which a cluster that stays whole was tried."""
    levels = np.repeat([1.0, 2.0, 3.0], n_clients // 3)
    method = Method(FedGWC(split=replace(split, beta=ALIKE)), rate)
    states = play(method, Clients(np.zeros(n_clients), levels=levels), begin(method, vector(0), n_clients), n_rounds)
    made = [state.groups.clusters[0].attempts for state in states]
    assert len(states[-1].groups.clusters) == 1
    return [t for t in range(1, len(made)) if made[t] > made[t - 1]]


def test_an_attempt_that_fails_starts_the_mse_anew() -> None:
    """Everybody is there, so the mse falls as 0.9^t, as long as P hardly changes: below 1/2 after 7 rounds."""
    assert 0.9**7 < 0.5 < 0.9**6
    assert attempts(PaperSplit(eps=0.5), 30, rate=1.0) == [7, 14, 21, 28]


def test_patience_waits_for_a_sweep_through_the_cluster() -> None:
    """30 clients, 3 a round: ten rounds in a row below an eps that everything is below."""
    assert attempts(PaperSplit(eps=2.0, patience="sweep"), 35) == [10, 20, 30]
    assert attempts(PaperSplit(eps=2.0), 3) == [1, 2, 3]


@pytest.mark.parametrize(
    ("split", "n_clients"),
    [(PaperSplit(eps=2.0, min_size=16), 30), (PaperSplit(eps=2.0, groups_by_cohort=True), 3), (PaperSplit(eps=2.0), 2)],
    ids=["min_size", "groups_by_cohort", "two clients"],
)
def test_what_could_not_be_divided_is_not_tried(split: PaperSplit, n_clients: int) -> None:
    method = Method(FedGWC(split=split), rate=1.0)
    last = play(method, Clients(np.zeros(n_clients)), begin(method, vector(0), n_clients), 5)[-1]
    assert last.groups.clusters[0].attempts == 0


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("name", ["eps", "beta"])
def test_eps_and_beta_are_positive_and_finite(name: str, value: Any) -> None:
    with pytest.raises(InputError, match="eps and beta must be positive and finite"):
        PaperSplit(**{name: value})


@pytest.mark.parametrize("settings", [{"n_max": 1}, {"min_size": 0}])
def test_fewest_groups_and_members(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="n_max must be at least 2 and min_size at least 1"):
        PaperSplit(**settings)
