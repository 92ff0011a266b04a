"""The SGD step, by hand and beside PyTorch's."""

import pytest
import torch
from torch import nn

from fedgwc.core.errors import InputError
from fedgwc.core.work import LocalTraining
from fedgwc.training.flat_model import FlatModel
from fedgwc.training.step import lone_grad, sgd_step


class Line(nn.Module):
    """Two classes with logits (0, a x): a one-parameter model whose gradient is easy."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.zeros_like(x), self.a * x], 1)


def one_step(local: LocalTraining, theta: float, anchor: float = 0.0) -> float:
    model = FlatModel(Line(), torch.float64)
    step = sgd_step(model, local)
    t = torch.tensor([theta], dtype=torch.float64)
    x, y, w = torch.ones(1, 1, dtype=torch.float64), torch.tensor([1]), torch.ones(1, dtype=torch.float64)
    new, _, _ = step(t, t.new_zeros(1 if local.momentum else 0), torch.tensor([anchor], dtype=torch.float64), x, y, w)
    return new.item()


def test_one_step_by_hand() -> None:
    """At a = 0 both classes have probability 1/2, so d loss / d a = 1/2 - 1 and one step of lr 1 gives 0.5."""
    assert one_step(LocalTraining(lr=1.0), 0.0) == 0.5


def test_weight_decay_and_prox_pull() -> None:
    """At a = 0 decay pulls nothing, and prox 0.1 towards an anchor at 2 adds 0.2."""
    assert one_step(LocalTraining(lr=1.0, weight_decay=0.3), 0.0) == 0.5
    assert one_step(LocalTraining(lr=1.0, prox=0.1), 0.0, anchor=2.0) == pytest.approx(0.7)


def test_step_equals_torch_sgd() -> None:
    """Ten steps with momentum and decay against torch.optim.SGD."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    local = LocalTraining(lr=0.2, momentum=0.9, weight_decay=0.01)
    model = FlatModel(net, torch.float64)
    theta, step = model.vector(), sgd_step(model, local)
    velocity = torch.zeros(model.n_params, dtype=torch.float64)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9, weight_decay=0.01)
    for _ in range(10):
        x, y = torch.randn(7, 5, dtype=torch.float64), torch.randint(3, (7,))
        theta, velocity, loss = step(theta, velocity, theta, x, y, torch.full((7,), 1 / 7, dtype=torch.float64))
        optimiser.zero_grad()
        expected = nn.functional.cross_entropy(net(x), y)
        expected.backward()
        optimiser.step()
        assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(theta, torch.cat([p.detach().flatten() for p in net.parameters()]))


def test_flat_model_round_trip() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 4))
    model = FlatModel(net)
    assert model.n_params == sum(p.numel() for p in net.parameters())
    assert model.size == model.n_params + 4  # running mean and variance
    state = model.state_dict(model.vector() + 1)
    assert state.keys() == net.state_dict().keys()
    torch.testing.assert_close(state["1.running_var"], torch.full((2,), 2.0))
    net.load_state_dict(state)


@pytest.mark.parametrize(
    "bad",
    [{"steps": 0}, {"steps": 1, "epochs": 1}, {"batch": 0}, {"lr": 0.0}, {"lr": float("inf")}, {"prox": -1.0}, {"momentum": 1.0}],
)
def test_impossible_settings(bad: dict[str, float]) -> None:
    with pytest.raises(InputError):
        LocalTraining(**bad)  # type: ignore[arg-type]


def test_the_lone_gradient_is_the_stackable_one_bit_for_bit() -> None:
    """With running statistics, and with a layer that the loss does not depend on."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.layer, self.idle = nn.BatchNorm1d(3), nn.Linear(3, 2), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            answer: torch.Tensor = self.layer(self.norm(x))
            return answer

    torch.manual_seed(0)
    model = FlatModel(Net())
    local = LocalTraining(steps=1, batch=4, lr=0.5, momentum=0.9, prox=0.1)
    theta, x, y, w = model.vector(), torch.randn(4, 3), torch.tensor([0, 1, 0, 1]), torch.full((4,), 0.25)
    given = theta, torch.zeros(model.n_params), theta + 1, x, y, w
    usual, lone = sgd_step(model, local)(*given), sgd_step(model, local, grad=lone_grad)(*given)
    for a, b in zip(usual, lone, strict=True):
        assert torch.equal(a, b)
        assert not b.requires_grad
    assert not torch.equal(lone[0], theta)
