"""MNIST and EMNIST from their idx files.

EMNIST with merged upper and lower case (47 classes) is the paper's Femnist.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fedgwc.core.errors import InputError
from fedgwc.data import options
from fedgwc.data.build import federate
from fedgwc.data.federation import Federation
from fedgwc.data.groups import Group
from fedgwc.data.pool import Pool
from fedgwc.data.sources.roots import Root, candidate_folders, not_found
from fedgwc.io import idx

BUNDLE = "gzip.zip"  # all EMNIST splits, as NIST offers them


def emnist(
    *,
    seed: options.Seed,
    root: options.Root = None,
    split: Annotated[Literal["bymerge", "balanced"], "which of EMNIST's"] = "bymerge",
    groups: options.Groups = (Group(400, "dirichlet", alpha=0.01),),
    train_size: options.TrainSize = 512,
    test_size: options.TestSize = 100,
    augment: options.Augment = False,
) -> Federation:
    """Deal out handwritten digits and letters of 1x28x28 pixels in 47 classes.

    There are 814,255 (bymerge) or 131,600 (balanced) of them.
    """
    return federate(emnist_pool(root, split), groups, train_size, test_size, seed, augment=augment)


def mnist(
    *,
    seed: options.Seed,
    root: options.Root = None,
    groups: options.Groups = (Group(100, "dirichlet", alpha=0.5),),
    train_size: options.TrainSize = 500,
    test_size: options.TestSize = 100,
    augment: options.Augment = False,
) -> Federation:
    """Deal out 70,000 handwritten digits of 1x28x28 pixels."""
    return federate(mnist_pool(root), groups, train_size, test_size, seed, augment=augment)


def emnist_pool(root: Root = None, split: str = "bymerge") -> Pool:
    # EMNIST stores images column by column; a transposed view turns them upright without a copy.
    return _pool("emnist", f"emnist-{split}-train", f"emnist-{split}-test", root, 47, (0.1736,), (0.3317,), upright=False)


def mnist_pool(root: Root = None) -> Pool:
    return _pool("mnist", "train", "t10k", root, 10, (0.1307,), (0.3081,), upright=True)


def _pool(
    name: str, train: str, test: str, root: Root, n_classes: int, mean: tuple[float], std: tuple[float], *, upright: bool
) -> Pool:
    images = [_read(name, f"{part}-images-idx3-ubyte", root, 3) for part in (train, test)]
    labels = [_read(name, f"{part}-labels-idx1-ubyte", root, 1) for part in (train, test)]
    for part, x, y in zip((train, test), images, labels, strict=True):
        if len(x) != len(y) or x.shape[1:] != (28, 28) or (len(y) and y.max() >= n_classes):
            came = f"images {x.shape}, {len(y)} labels up to {y.max(initial=0)}"
            raise InputError(f"{part} has {came}; {name} has 28x28 images with labels 0..{n_classes - 1}: get the official files")
    n_train = len(images[0])
    pixels = np.concatenate(images)
    samples = torch.from_numpy(pixels if upright else pixels.transpose(0, 2, 1))[:, None]
    rows = np.arange(len(pixels))
    targets = torch.from_numpy(np.concatenate(labels).astype(np.int64))
    return Pool(samples, targets, rows[:n_train], rows[n_train:], n_classes, mean, std, name)


def _read(name: str, file: str, root: Root, ndim: int) -> NDArray[np.uint8]:
    found = idx.find(candidate_folders(name, root), file, BUNDLE if name == "emnist" else "")
    if found is None:
        raise not_found(name, [file, f"{file}.gz", *([BUNDLE] if name == "emnist" else [])], root)
    return idx.read(found[0], ndim, found[1])
