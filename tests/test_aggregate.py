"""Numbers one can do in the head."""

import numpy as np
import pytest
import torch

from fedgwc.aggregate import Aggregator, Server
from fedgwc.core import Updates
from fedgwc.errors import InputError


def updates(models: list[list[float]], sizes: list[int], n_params: int | None = None) -> Updates:
    n = len(models)
    return Updates(np.arange(n), torch.tensor(models), torch.zeros(n, 1), torch.tensor(sizes), n_params)


ZERO = Server(torch.zeros(1))


def test_mean_is_weighted_by_samples() -> None:  # (3*0 + 1*4) / 4 = 1
    assert Aggregator().step(ZERO, updates([[0.0], [4.0]], [3, 1])).theta.tolist() == [1.0]


def test_fairavg_weighs_clients_equally() -> None:  # (0 + 4) / 2 = 2
    assert Aggregator(weights="equal").step(ZERO, updates([[0.0], [4.0]], [3, 1])).theta.tolist() == [2.0]


def test_momentum_keeps_going() -> None:  # 0 -> 1, then the clients stand still at 1: the velocity 1 is halved, so 1.5
    fedavgm = Aggregator(momentum=0.5)
    one = fedavgm.step(ZERO, updates([[1.0]], [1]))
    two = fedavgm.step(one, updates([[1.0]], [1]))
    assert (one.theta.item(), two.theta.item()) == (1.0, 1.5)


def test_server_learning_rate_goes_part_of_the_way() -> None:
    assert Aggregator(lr=0.25).step(ZERO, updates([[4.0]], [1])).theta.tolist() == [1.0]


def test_buffers_are_only_averaged() -> None:
    """Momentum would move the second entry, a buffer, past its clients' mean."""
    fedavgm, server = Aggregator(momentum=0.5), Server(torch.zeros(2))
    for _ in range(2):
        server = fedavgm.step(server, updates([[1.0, 1.0]], [1], n_params=1))
    assert server.theta.tolist() == [1.5, 1.0]


def test_no_answer_changes_nothing() -> None:
    empty = Updates(np.empty(0, np.int64), torch.empty(0, 1), torch.empty(0, 1), torch.empty(0))
    assert Aggregator(momentum=0.9).step(ZERO, empty) is ZERO


@pytest.mark.parametrize("bad", [{"momentum": 1.0}, {"momentum": -0.1}, {"lr": 0.0}])
def test_impossible_settings(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must be"):
        Aggregator(**bad)  # type: ignore[arg-type]
