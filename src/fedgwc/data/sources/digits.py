"""The 8x8 digits of scikit-learn: real data without a download."""

from __future__ import annotations

import numpy as np
import torch

from fedgwc.data import options
from fedgwc.data.build import federate
from fedgwc.data.federation import Federation
from fedgwc.data.groups import Group
from fedgwc.data.pool import Pool


def digits(
    *,
    seed: options.Seed,
    groups: options.Groups = (Group(85), Group(15, relabel=1)),
    train_size: options.TrainSize = 12,
    test_size: options.TestSize = 5,
) -> Federation:
    """Deal out 1,797 handwritten digits of 1x8x8 pixels in [0, 1].

    A seeded 30 % of them are test images.
    """
    from sklearn.datasets import load_digits

    raw = load_digits()
    x = torch.from_numpy((raw.data / 16).astype(np.float32)).reshape(-1, 1, 8, 8)
    order = np.random.default_rng([seed, 30]).permutation(len(x))
    cut = round(0.7 * len(x))
    pool = Pool(x, torch.from_numpy(raw.target.astype(np.int64)), order[:cut], order[cut:], 10, name="digits")
    return federate(pool, groups, train_size, test_size, seed)
