"""The clients' loss against PyTorch's own."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.func import grad, vmap
from torch.overrides import TorchFunctionMode

from fedgwc.training.loss import weighted_cross_entropy


def batch(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    own = torch.Generator().manual_seed(0)
    out, w = torch.randn(4, 6, 5, generator=own, dtype=dtype), torch.rand(4, 6, generator=own, dtype=dtype)
    return 3 * out, torch.randint(5, (4, 6), generator=own), w


def pytorchs(out: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (F.cross_entropy(out, y, reduction="none") * w).sum()


def test_value_and_slope_alone_and_stacked() -> None:
    for f in (lambda loss: loss, grad):
        ours, theirs = f(weighted_cross_entropy), f(pytorchs)
        for stacked, alone in zip(vmap(ours)(*batch()), zip(*batch(), strict=True), strict=True):
            torch.testing.assert_close(stacked, theirs(*alone))
            torch.testing.assert_close(ours(*alone), theirs(*alone))


def test_autograd_and_a_factor_behind_the_loss() -> None:
    out, y, w = (t[0] for t in batch())
    slopes = []
    for loss in (weighted_cross_entropy, pytorchs):
        leaf = out.clone().requires_grad_()
        slopes.append(torch.autograd.grad(2 * loss(leaf, y, w) + leaf.sum(), leaf)[0])
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("far", [1e4, float("inf")])
def test_logits_far_apart(far: float) -> None:
    out = torch.tensor([[0.0, -far], [0.0, 0.0]])
    loss = weighted_cross_entropy(out, torch.tensor([0, 1]), torch.ones(2))
    assert loss.item() == pytest.approx(0.6931472)
    slope = grad(weighted_cross_entropy)(out, torch.tensor([0, 1]), torch.ones(2))
    assert slope.tolist() == [[0.0, 0.0], [0.5, -0.5]]


def test_half_precision_logits_are_scored_in_the_precision_of_the_weights() -> None:
    out, y, w = (t[0] for t in batch(torch.float32))
    assert weighted_cross_entropy(out.bfloat16(), y, w).dtype == torch.float32


def test_a_mode_may_take_its_place() -> None:
    """Under vmap and grad too, which is where a GPU's kernel does."""

    class Doubled(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return 2 * pytorchs(*args) if func is weighted_cross_entropy else func(*args, **(kwargs or {}))

    def inside(*args: torch.Tensor) -> torch.Tensor:
        with Doubled():
            return weighted_cross_entropy(*args)

    torch.testing.assert_close(vmap(grad(inside))(*batch()), 2 * vmap(grad(pytorchs))(*batch()))
