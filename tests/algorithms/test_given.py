"""Groups that are known beforehand."""

from __future__ import annotations

import pytest
import torch

from fedgwc.algorithms.fedavg import OneGroup
from fedgwc.algorithms.given import Given
from fedgwc.algorithms.method import Method
from fedgwc.core.errors import InputError
from fedgwc.core.types import Rng

from .clients import Clients, begin, thetas


def test_each_group_has_the_mean_of_its_own_clients() -> None:
    method = Method(Given((0, 1, 0)), rate=1)
    state = method.round(begin(method, torch.zeros(1), 3), Clients([1, 9, 3]), Rng(0, 1))
    assert thetas(state) == [2, 9]
    assert state.groups.labels().tolist() == [0, 1, 0]


def test_without_labels_it_is_fedavg_and_says_so() -> None:
    methods = Method(Given(), rate=1), Method(OneGroup(), rate=1)
    one, other = (thetas(m.round(begin(m, torch.zeros(1), 3), Clients([1, 9, 3]), Rng(0, 1))) for m in methods)
    assert one == other
    assert Given().warnings(3)
    assert not Given((0, 0, 0)).warnings(3)


@pytest.mark.parametrize("labels", [(0, 1), (0, 2, 2), (1, 1, 1)])
def test_labels_are_one_for_each_client_without_gaps(labels: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="a group for each of the 3 clients"):
        begin(Method(Given(labels)), torch.zeros(1), 3)
