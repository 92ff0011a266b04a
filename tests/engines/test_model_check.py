"""A model that does not fit the data is refused before anybody trains."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedgwc.core.errors import InputError
from fedgwc.engines.model_check import check_fits
from fedgwc.engines.simulator import Simulator
from fedgwc.runs.experiment import load


class Words(nn.Module):
    def forward(self, x: torch.Tensor) -> str:
        return "a model"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(9, 10)), r"cannot take samples of shape \(1, 8, 8\): mat1 and mat2"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 1)), r"for one sample of these data \[1, 10\], and gave shape \(1, 1\)"),
        (nn.Flatten(0), r"and gave shape \(64,\)"),
        (Words(), "and gave a str"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(model: nn.Module, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Simulator(load("digits").federation(), model)


def test_looking_changes_nothing() -> None:
    """Neither running statistics nor the mode, nor the generator that Dropout draws from."""
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Dropout(), nn.Linear(64, 12))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(0)
    check_fits(model, (1, 8, 8), 10)  # more scores than classes are allowed
    assert torch.rand(()) == torch.rand((), generator=torch.Generator().manual_seed(0))
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
