"""Who was asked to train and did not answer."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from fedgwc.core import Engine, Ids, Scores, Split, Updates


class Roll:
    """Passes everything on to `engine` and counts failures: a model or loss that was not finite, a node that was gone."""

    def __init__(self, engine: Engine, n_clients: int) -> None:
        self.engine = engine
        self.failures: Ids = np.zeros(n_clients, np.int64)  # [N]
        self.news: list[int] = []  # clients that failed for the first time since `clear`

    def clear(self) -> None:
        self.news = []

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        updates = self.engine.train(clients, models, which, seed)
        if len(updates) < len(clients):
            absent = np.setdiff1d(clients, updates.clients)
            self.news += absent[self.failures[absent] == 0].tolist()
            self.failures[absent] += 1
        return updates

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        return self.engine.evaluate(clients, models, which, split)
