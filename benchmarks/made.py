"""Made data of the true shapes, so that speed can be measured without any data set."""

from __future__ import annotations

import numpy as np
import torch

from fedgwc.data import Federation, Rows


def cifar_like(n_clients: int = 100, train: int = 500, test: int = 100, n_classes: int = 100, augment: bool = True) -> Federation:
    """As large as CIFAR-100 dealt to `n_clients`: random pixels, random labels."""
    rng = np.random.default_rng(0)
    n = n_clients * (train + test)
    x = torch.from_numpy(rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8))
    y = torch.from_numpy(rng.integers(0, n_classes, n))
    rows = np.arange(n)
    return Federation(
        x,
        y,
        Rows.of(list(rows[: n_clients * train].reshape(n_clients, train))),
        Rows.of(list(rows[n_clients * train :].reshape(n_clients, test))),
        n_classes,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        augment=augment,
        name="made",
    )
