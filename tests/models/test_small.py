"""Models: the counts that were published, image sizes, and stacking."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from fedgwc.core.errors import InputError
from fedgwc.core.work import LocalTraining
from fedgwc.models import MODELS, cnn, lenet5, mlp, mobilenet_v2
from fedgwc.training.flat_model import FlatModel
from fedgwc.training.step import local_step

SETTINGS: dict[str, dict[str, float]] = {"mobilenet_v2": {"dropout": 0.0}}


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("build", "shape", "n_classes", "expected"),
    [
        (mlp, (64,), 10, 64 * 32 + 32 + 32 * 10 + 10),
        (cnn, (3, 32, 32), 100, 815_332),
        (lenet5, (1, 28, 28), 47, 156 + 2_416 + 48_120 + 10_164 + 3_995),
        (lenet5, (1, 28, 28), 10, 61_706),
        (mobilenet_v2, (3, 224, 224), 1000, 3_504_872),
    ],
)
def test_number_of_parameters(build: Callable[..., nn.Module], shape: tuple[int, ...], n_classes: int, expected: int) -> None:
    assert count(build(shape, n_classes)) == expected


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 33, 48)])
def test_logits_for_any_image_size(name: str, shape: tuple[int, ...]) -> None:
    out = MODELS[name](shape, 7).eval()(torch.zeros(2, *shape))
    assert out.shape == (2, 7)


@pytest.mark.parametrize(("build", "smallest"), [(cnn, 16), (lenet5, 12)])
def test_too_small_images_are_refused(build: Callable[..., nn.Module], smallest: int) -> None:
    assert build((1, smallest, smallest), 2)(torch.zeros(1, 1, smallest, smallest)).shape == (1, 2)
    with pytest.raises(InputError, match=f"at least {smallest}x{smallest}"):
        build((1, smallest, smallest - 1), 2)


@pytest.mark.parametrize("build", [cnn, lenet5, mobilenet_v2])
def test_only_images_are_taken(build: Callable[..., nn.Module]) -> None:
    with pytest.raises(InputError, match="use mlp"):
        build((64,), 10)


def test_layers_are_bounded() -> None:
    with pytest.raises(InputError, match="at most 100 hidden layers, got 3,000"):
        mlp((64,), 10, hidden=(8,) * 3000)


def test_dropout_is_a_share() -> None:
    with pytest.raises(InputError, match="dropout"):
        mobilenet_v2((3, 32, 32), 2, dropout=1.0)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Hundreds of tiny operations: on a busy machine, threads that wait for each other make them 50 times slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", MODELS)
def test_stacked_steps_equal_single_steps(name: str) -> None:
    torch.manual_seed(0)
    model = FlatModel(MODELS[name]((3, 32, 32), 5, **SETTINGS.get(name, {})), torch.float64)
    model.module.train()
    step = local_step(model, LocalTraining(lr=0.1))
    x, y = torch.randn(2, 4, 3, 32, 32, dtype=torch.float64), torch.randint(5, (2, 4))
    theta, weights = model.vector().repeat(2, 1), torch.full((2, 4), 0.25, dtype=torch.float64)
    absent = theta.new_empty(2, 0)
    args = (theta, theta, absent, absent, x, y, weights)
    stacked, losses = torch.func.vmap(step)(*args)
    for i in range(2):
        alone, loss = step(*[a[i] for a in args])
        torch.testing.assert_close(stacked[i], alone, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(losses[i], loss, rtol=1e-12, atol=0)
    assert not torch.equal(stacked[0], theta[0])
