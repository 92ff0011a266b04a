"""Made images, as many as a federation needs: classes of random patterns under noise."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch

from fedgwc.core.errors import InputError
from fedgwc.data import options
from fedgwc.data.build import federate
from fedgwc.data.federation import Federation
from fedgwc.data.groups import Group
from fedgwc.data.pool import Pool

SPARE = 2  # times the samples that clients get, so that a skewed partition finds enough of every class


def made(
    *,
    seed: options.Seed,
    groups: options.Groups = (Group(70), Group(30, relabel=1)),
    train_size: options.TrainSize = 40,
    test_size: options.TestSize = 20,
    classes: Annotated[int, "how many"] = 10,
    patterns: Annotated[int, "random patterns per class; more need more samples to learn"] = 3,
    noise: Annotated[float, "standard deviation of each pixel around its pattern, whose own is 1"] = 1.5,
    side: Annotated[int, "pixels of an image's height and width"] = 8,
) -> Federation:
    """Deal out made images of 1 x side x side pixels, new ones for every seed."""
    for name, value in (("classes", classes), ("patterns", patterns), ("side", side)):
        if value < 1:
            raise InputError(f"data.{name} must be at least 1, got {value}")
    if not 0 <= noise < float("inf"):
        raise InputError(f"data.noise must be at least 0 and finite, got {noise}")
    rng = np.random.default_rng([seed, 40])
    n_train, n_test = (
        SPARE * sum(g.clients * (getattr(g, name) or size) for g in groups)
        for name, size in (("train_size", train_size), ("test_size", test_size))
    )
    n = n_train + n_test
    means = rng.standard_normal((classes * patterns, side * side)).astype(np.float32)
    which = rng.integers(classes * patterns, size=n)
    x = means[which] + noise * rng.standard_normal((n, side * side), dtype=np.float32)
    images, labels = torch.from_numpy(x.reshape(n, 1, side, side)), torch.from_numpy(which % classes)
    pool = Pool(images, labels, np.arange(n_train), np.arange(n_train, n), classes, name="made")
    return federate(pool, groups, train_size, test_size, seed)
