"""A client's step: its optimiser, schedule, clipping, anchor and mask."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

from fedgwc.core.errors import InputError
from fedgwc.core.work import LocalTraining, Work
from fedgwc.training.flat_model import FlatModel
from fedgwc.training.optimisers import OPTIMISERS, Optimiser, clipped
from fedgwc.training.schedules import SCHEDULES, learning_rate
from fedgwc.training.step import local_step, lone_grad


class Line(nn.Module):
    """Two classes with logits (0, a x): a one-parameter model whose gradient is easy."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.zeros_like(x), self.a * x], 1)


ABSENT = torch.empty(0)


def one_step(local: LocalTraining, theta: float, anchor: float = 0.0, rate: float | None = None) -> float:
    model = FlatModel(Line(), torch.float64)
    step = local_step(model, local)
    t, pull = (torch.tensor([value], dtype=torch.float64) for value in (theta, anchor))
    x, y, w = torch.ones(1, 1, dtype=torch.float64), torch.tensor([1]), torch.ones(1, dtype=torch.float64)
    new, *_ = step(t, pull, ABSENT, ABSENT if rate is None else torch.tensor([rate]), x, y, w)
    return new.item()


def test_one_step_by_hand() -> None:
    """At a = 0 both classes have probability 1/2, so d loss / d a = 1/2 - 1 and one step of lr 1 gives 0.5."""
    assert one_step(LocalTraining(lr=1.0), 0.0) == 0.5


def test_weight_decay_and_prox_pull() -> None:
    """At a = 0 decay pulls nothing, and prox 0.1 towards an anchor at 2 adds 0.2."""
    assert one_step(LocalTraining(lr=1.0, weight_decay=0.3), 0.0) == 0.5
    assert one_step(LocalTraining(lr=1.0, prox=0.1), 0.0, anchor=2.0) == pytest.approx(0.7)


def test_a_rounds_rate_takes_the_place_of_lr() -> None:
    assert one_step(LocalTraining(lr=1.0), 0.0, rate=0.25) == 0.125


def test_first_steps_by_hand() -> None:
    """Adam's first step is the sign of the gradient whatever its size; AdamW's decay is apart, 0.3 * 1 of the weight."""
    adam, adamw = (LocalTraining(lr=1.0, optimiser=name, weight_decay=0.3) for name in ("adam", "adamw"))
    assert one_step(adam, 0.0) == pytest.approx(1.0)
    assert one_step(adamw, 1.0) == pytest.approx(1.0 + 1.0 - 0.3)
    assert one_step(LocalTraining(lr=1.0, clip=0.125), 0.0) == pytest.approx(0.125, rel=1e-4)  # of 0.5


TORCHS: dict[str, Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.2, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.2, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.01),
}


@pytest.mark.parametrize("clip", [0.0, 0.3])
@pytest.mark.parametrize("name", TORCHS)
def test_steps_equal_those_of_torch(name: str, clip: float) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    own: dict[str, Any] = {"momentum": 0.9} if name == "sgd" else {"betas": (0.8, 0.9), "eps": 1e-3}
    local = LocalTraining(lr=0.2, optimiser=name, weight_decay=0.01, clip=clip, **own)
    model = FlatModel(net, torch.float64)
    theta, step = model.vector(), local_step(model, local)
    memory: list[torch.Tensor] = []
    optimiser = TORCHS[name](net.parameters())
    for _ in range(10):
        x, y = torch.randn(7, 5, dtype=torch.float64), torch.randint(3, (7,))
        weights = torch.full((7,), 1 / 7, dtype=torch.float64)
        theta, loss, *memory = step(theta, theta, ABSENT, ABSENT, x, y, weights, *memory)
        optimiser.zero_grad()
        expected = nn.functional.cross_entropy(net(x), y)
        expected.backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimiser.step()
        assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    torch.testing.assert_close(theta, torch.cat([p.detach().flatten() for p in net.parameters()]))


def test_clipped_gradients_have_the_norm_allowed_and_small_ones_stay() -> None:
    g = torch.tensor([3.0, 4.0])
    assert clipped(g, 2.0).norm().item() == pytest.approx(2.0)
    assert torch.equal(clipped(g, 6.0), g)


def test_only_moving_entries_are_clipped_and_move() -> None:
    """The gradient is (1/2, 1/2) times -1; of one moving entry it has the norm 1/2, which a clip of 1/2 leaves."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([torch.zeros_like(x), self.a.sum() * x], 1)

    model = FlatModel(Two())
    step = local_step(model, LocalTraining(lr=1.0, clip=0.5, weight_decay=0.1))
    theta, moves = torch.tensor([0.0, 0.0]), torch.tensor([True, False])
    new, *_ = step(theta, theta, moves, ABSENT, torch.ones(1, 1), torch.tensor([1]), torch.ones(1))
    assert new[0].item() == pytest.approx(0.5, rel=1e-4)
    assert new[1].item() == 0.0


def test_an_optimiser_of_ones_own_is_one_function_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIMISERS, "sign", Optimiser(lambda gradient, memory, parameters, local: (gradient.sign(), ())))
    assert one_step(LocalTraining(lr=0.25, optimiser="sign"), 0.0) == 0.25
    with pytest.raises(InputError, match=r"unknown optimiser 'sgn' \(did you mean sign\?\); choose from adam, adamw, sgd, sign"):
        one_step(LocalTraining(optimiser="sgn"), 0.0)


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("constant", [1, 1, 1, 1, 1, 1]),
        ("linear", [1, 0.75, 0.5, 0.25, 0, 0]),
        ("cosine", [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0, 0]),
        ("step", [1, 1, 1, 1, 0, 0]),
    ],
)
def test_schedules_by_hand(name: str, factors: list[float]) -> None:
    """Over four rounds to nothing; round r has (r - 1) / 4 of the way behind it."""
    local = LocalTraining(schedule=name, horizon=4, lr_end=0.0)
    assert [SCHEDULES[name](r, local) for r in range(1, 7)] == pytest.approx(factors)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_begins_at_lr_and_has_reached_lr_end_after_the_horizon(name: str) -> None:
    local = LocalTraining(lr=0.5, schedule=name, horizon=7, lr_end=0.25)
    assert (learning_rate(local, 1) or local.lr) == 0.5
    assert (learning_rate(local, 8) or local.lr) == (0.5 if name == "constant" else pytest.approx(0.125))


def test_a_schedule_needs_to_know_the_round_and_its_horizon() -> None:
    with pytest.raises(InputError, match=r"pass engine.train\(\.\.\., work=Work\(round=\.\.\.\)\)"):
        learning_rate(LocalTraining(schedule="cosine", horizon=10), None)
    with pytest.raises(InputError, match=r"local\.schedule=cosine needs local\.horizon"):
        LocalTraining(schedule="cosine")
    with pytest.raises(InputError, match="counted from 1"):
        Work(round=0)


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
    [
        {"steps": 0},
        {"steps": 1, "epochs": 1},
        {"batch": 0},
        {"lr": 0.0},
        {"lr": float("inf")},
        {"prox": -1.0},
        {"momentum": 1.0},
        {"clip": -1.0},
        {"betas": (0.9,)},
        {"betas": (0.9, 1.0)},
        {"eps": float("inf")},
        {"horizon": 0},
        {"lr_end": -0.1},
        {"optimiser": "adam", "momentum": 0.9},
    ],
)
def test_impossible_settings(bad: dict[str, object]) -> None:
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
    given = theta, theta + 1, ABSENT, ABSENT, x, y, w, torch.ones(model.n_params)
    usual, lone = local_step(model, local)(*given), local_step(model, local, grad=lone_grad)(*given)
    for a, b in zip(usual, lone, strict=True):
        assert torch.equal(a, b)
        assert not b.requires_grad
    assert not torch.equal(lone[0], theta)
