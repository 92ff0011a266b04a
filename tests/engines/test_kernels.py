"""Each Triton kernel against PyTorch, for many clients at once. Skipped where there is no CUDA card."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedgwc.core.work import LocalTraining
from fedgwc.training.optimisers import descent

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(("precision", "allowed"), [("ieee", 1e-6), ("tf32", 2e-3), ("bf16", 1e-2)])
@pytest.mark.parametrize(
    ("n", "batch", "channels", "size", "out", "kernel", "padding"),
    [
        (3, 64, 3, (32, 32), 64, 5, (0, 0)),  # the paper's first block
        (3, 64, 64, (14, 14), 64, 5, (0, 0)),  # and its second
        (2, 32, 1, (28, 28), 6, 5, (2, 2)),  # LeNet-5
        (2, 16, 20, (9, 12), 70, 3, (1, 0)),  # nothing a power of two, a border that no square covers
        (1, 48, 5, (8, 7), 3, 1, (0, 0)),
    ],
)
def test_block(
    n: int, batch: int, channels: int, size: tuple[int, int], out: int, kernel: int, padding: tuple[int, int],
    precision: str, allowed: float, relu: bool,
) -> None:  # fmt: skip
    from fedgwc.engines.kernels.triton_block import forward, gradients

    torch.manual_seed(0)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    x, w, b = (
        random(n, batch, channels, *size, dtype=dtype),
        random(n, out, channels, kernel, kernel, dtype=dtype),
        random(n, out),
    )
    exact = [t.double().requires_grad_() for t in (x, w, b.to(dtype))]
    convolved = [F.conv2d(image, weight, bias, padding=padding) for image, weight, bias in zip(*exact, strict=True)]
    expected = torch.stack([F.max_pool2d(client, 2) for client in convolved])
    expected = expected.relu() if relu else expected
    dy = random(*expected.shape, dtype=dtype)
    y, turned, where = forward(x, w, b, padding, relu, "ieee" if precision == "ieee" else "tf32")
    assert error(y, expected) < allowed
    assert torch.equal(y, turned)
    # Which of a square is largest may differ where two nearly are, so slopes follow what the kernel says.
    position = where.long().clamp(max=3)
    rows, columns = torch.meshgrid(*(torch.arange(s, device="cuda") for s in expected.shape[3:]), indexing="ij")
    width = exact[0].shape[4] + 2 * padding[1] - kernel + 1
    at = (2 * rows + position // 2) * width + 2 * columns + position % 2
    full = torch.stack(convolved)
    chosen = full.flatten(3).gather(3, at.flatten(3)).view_as(expected) * (where < 4)
    assert error(chosen.detach(), expected) < allowed
    slopes = torch.autograd.grad(chosen, exact, dy.double())
    for wants_input in (True, False):
        *dx, dw, db = gradients(x, None, w, dy, where, padding, "ieee" if precision == "ieee" else "tf32", wants_input)
        assert error(dw, slopes[1]) < allowed
        assert error(db, slopes[2]) < allowed
        if wants_input:
            assert error(dx[0], slopes[0]) < allowed


def test_dense_and_loss() -> None:
    from fedgwc.engines.kernels import triton_dense as kernels

    torch.manual_seed(0)
    y, bias, dy = random(3, 70, 37), random(3, 50)[:, :37], random(3, 37, 70).transpose(1, 2)
    torch.testing.assert_close(kernels.activate(y.clone(), bias, True), (y + bias[:, None]).relu())
    slope, total = kernels.slopes(dy, y, True)
    torch.testing.assert_close(slope, dy * (y > 0))
    torch.testing.assert_close(total, (dy * (y > 0)).sum(1), rtol=1e-5, atol=1e-5)
    logits, labels = random(3, 70, 37).requires_grad_(), torch.randint(0, 37, (3, 2, 70), device="cuda")[:, 1]
    labels[0, 0] = -100  # ignored
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(3, 70)
    torch.testing.assert_close(kernels.cross_entropy(logits.detach(), labels), losses)
    weights = random(70, 3).T
    (expected,) = torch.autograd.grad(losses, logits, weights)
    torch.testing.assert_close(kernels.cross_entropy_gradient(logits.detach(), labels, weights), expected)


@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.parametrize("given", [False, True], ids=["settings only", "rate and mask"])
@pytest.mark.parametrize("local", [LocalTraining(lr=0.1), LocalTraining(lr=0.1, weight_decay=0.1, momentum=0.5, prox=0.3)])
def test_descend(local: LocalTraining, given: bool, ragged: bool) -> None:
    """Against the step that all other engines take."""
    from fedgwc.engines.kernels.triton_dense import descend

    torch.manual_seed(0)
    theta, anchor, velocity = random(3, 2120), random(3, 2120), random(3, 2100 if local.momentum else 0)
    grads = [random(3, 40, 50), random(3, 100)[:, :17], random(3, 83)]
    working = torch.tensor([True, False, True], device="cuda") if ragged else None
    moves, rate = (random(3, 2120) > 0, random(3, 1).abs()) if given else (theta.new_empty(3, 0), theta.new_empty(3, 0))
    old, g = theta[:, :2100], torch.cat([t.flatten(1) for t in grads], 1)
    memory = (velocity,) if local.momentum else ()
    expected, *kept = torch.func.vmap(descent(local))(old, g, anchor[:, :2100], moves[:, :2100], rate, *memory)
    new, moved = descend(theta, grads, velocity, anchor, moves, rate, working, local)
    torch.testing.assert_close(new[:, :2100], expected if working is None else torch.where(working[:, None], expected, old))
    if given:
        stays = ~moves[:, :2100]
        assert torch.equal(new[:, :2100][stays], old[stays])
    else:
        torch.testing.assert_close(moved, kept[0] if kept else velocity)


def test_images_last() -> None:
    from fedgwc.engines.kernels.triton_conv import images_last

    x = random(2, 70, 3, 5, 7)
    turned = images_last(x)
    assert torch.equal(turned, x)
    assert turned.stride(1) == 1
