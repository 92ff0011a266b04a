"""Small networks: dense layers, the paper's CNN, LeNet-5."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated

from torch import nn

from fedgwc.core.errors import InputError

MOST_LAYERS = 100  # of an mlp, hidden ones
KERNEL = 5  # both convolutional networks use 5x5 kernels and 2x2 pooling

Hidden = Annotated[tuple[int, ...], "widths of the layers between samples and classes; []: none"]


def mlp(shape: tuple[int, ...], n_classes: int, *, hidden: Hidden = (32,)) -> nn.Module:
    """Dense layers with ReLU between them.

    Digits with one hidden layer of 32: 2,410 parameters.
    """
    if len(hidden) > MOST_LAYERS:
        raise InputError(f"mlp has at most {MOST_LAYERS} hidden layers, got {len(hidden):,}")
    return nn.Sequential(nn.Flatten(), *_dense((math.prod(shape), *hidden, n_classes)))


def cnn(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The paper's network for CIFAR.

    Two blocks of 64 channels without padding, then 1600-384-192-classes.

    815,332 parameters at 3x32x32 and 100 classes. Images of another size change the 1600; 16x16 is the smallest.
    """
    channels, height, width = image_shape("cnn", shape)
    blocks = [*_block(channels, 64), *_block(64, 64)]
    features = 64 * math.prod(_side_after_blocks("cnn", shape, side, 0) for side in (height, width))
    return nn.Sequential(*blocks, nn.Flatten(), *_dense((features, 384, 192, n_classes)))


def lenet5(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """LeNet-5 in its present-day form.

    ReLU, max-pooling, all channels connected, a linear output layer.

    LeCun et al. (1998) had scaled tanh, trained subsampling, a partial connection table and RBF outputs. The layers are
    theirs: 6 and 16 channels, then 400-120-84-classes; a padding of 2 makes 28x28 images the 32x32 that they used.
    64,851 parameters at 1x28x28 and 47 classes (61,706 at 10). Images of another size change the 400; 12x12 is the smallest.
    """
    channels, height, width = image_shape("lenet5", shape)
    blocks = [*_block(channels, 6, padding=2), *_block(6, 16)]
    features = 16 * math.prod(_side_after_blocks("lenet5", shape, side, 2) for side in (height, width))
    return nn.Sequential(*blocks, nn.Flatten(), *_dense((features, 120, 84, n_classes)))


def image_shape(model: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return (channels, height, width) of images.

    Other samples are an error that says which model to use.
    """
    if len(shape) != 3 or min(shape) < 1:
        raise InputError(f"{model} takes images of shape (channels, height, width), got {tuple(shape)}; use mlp for other data")
    channels, height, width = shape
    return channels, height, width


def _block(n_in: int, n_out: int, padding: int = 0) -> list[nn.Module]:
    # ReLU keeps order, so it gives the same after pooling as before it, for a quarter of the work.
    return [nn.Conv2d(n_in, n_out, KERNEL, padding=padding), nn.MaxPool2d(2), nn.ReLU()]


def _side_after_blocks(model: str, shape: tuple[int, ...], side: int, padding: int) -> int:
    """Return an image side's length after two blocks.

    `padding` is the first block's.
    """
    lost = KERNEL - 1
    left = ((side + 2 * padding - lost) // 2 - lost) // 2
    if left < 1:
        smallest = 4 + 3 * lost - 2 * padding
        raise InputError(f"{model} needs images of at least {smallest}x{smallest}, got {tuple(shape)}; enlarge them or use mlp")
    return left


def _dense(widths: tuple[int, ...]) -> list[nn.Module]:
    """Build linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return layers[:-1]
