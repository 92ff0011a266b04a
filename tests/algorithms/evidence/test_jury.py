"""Juries: who is asked about which models, and what bets come to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedgwc.algorithms.evidence.jury import Trial, ballots, shares_better_served
from tests.algorithms.clients import Clients


def trial(*labels: int) -> Trial:
    k = max(labels) + 1
    return Trial.of(np.array(labels), (np.arange(k) + 1) % k, np.full(k, 0.01))


def test_a_jurors_own_answer_is_in_neither_model() -> None:
    """Clients at 0, 1, 10, 11: juror 0 compares 1, its only fellow, with the mean of 1, 10 and 11."""
    engine = Clients(np.array([0.0, 1.0, 10.0, 11.0]))
    models = torch.tensor([[0.0], [1.0], [10.0], [11.0]], dtype=torch.float64)
    asked = shares_better_served(trial(0, 0, 1, 1), np.arange(4), models, np.ones(4), engine, np.random.default_rng(0))
    assert asked.tolist() == [1.0, 1.0]
    assert engine.asked[0][2] == "validation"
    assert sorted(engine.asked[0][0].tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_who_shares_no_data_is_served_worse() -> None:
    """Everybody is at 0, and parts' means are noisier than that of all: the cut serves nobody."""
    rng = np.random.default_rng(0)
    models = torch.from_numpy(rng.standard_normal((40, 30)))
    cut = trial(*np.repeat([0, 1], 20))
    shares = shares_better_served(cut, np.arange(40), models, np.ones(40), Clients(np.zeros((40, 30))), rng)
    assert (shares < 0).all()


def test_a_part_of_which_nobody_answered_is_not_heard() -> None:
    models = torch.zeros(2, 1, dtype=torch.float64)
    shares = shares_better_served(
        trial(0, 0, 1, 1), np.array([0, 1]), models, np.ones(2), Clients(np.zeros(4)), np.random.default_rng(0)
    )
    assert np.isnan(shares).all()
    assert np.abs(trial(0, 0, 1, 1).after(shares).won()).max() < 1e-12


def test_stakes_by_hand() -> None:
    """All jurors better served once: stakes of 1.2, 1.5 and 1.9 are 1.53 on average; against them 0.8, 0.5 and 0.1."""
    won = np.exp(trial(0, 1).after(np.array([1.0, 0.0])).won())
    assert won.tolist() == [[pytest.approx(4.6 / 3), pytest.approx(1.4 / 3)], [pytest.approx(1.0), pytest.approx(1.0)]]


def test_coin_flips_seldom_win() -> None:
    """The average stake is a martingale: it reaches 20 in at most 5 % of all lives."""
    rng, lives = np.random.default_rng(0), 400
    one = Trial.of(np.arange(lives), np.zeros(lives, np.int64), np.ones(lives))
    reached = np.zeros(lives, bool)
    for _ in range(200):
        one = one.after(2 * rng.binomial(8, 0.5, lives) / 8 - 1)
        reached |= one.won()[:, 0] >= np.log(20)
    assert reached.mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / lives)


def test_ballots_are_log_likelihoods() -> None:
    """A client at 3 loses 9 under the model at 0 and 1 under that at 2; it has one sample."""
    who, likelihood = ballots(
        np.array([1]), torch.tensor([[0.0], [2.0]], dtype=torch.float64), Clients(np.array([0.0, 3.0])), "train"
    )
    assert (who.tolist(), likelihood.tolist()) == ([1], [[-9.0, -1.0]])
