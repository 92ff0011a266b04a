"""What a run counts from outside, and an engine that counts for itself."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedgwc.core.types import Costs, Ids, Scores, Split, Updates
from fedgwc.core.work import LocalTraining, Work
from fedgwc.engines.meter import Meter


class Silent:
    """Two clients that send back what they got, after three steps."""

    def __init__(self) -> None:
        self.asked: list[Work | None] = []

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        self.asked.append(work)
        n = len(clients)
        return Updates(clients, models[torch.from_numpy(which)], torch.zeros(n, 3), torch.ones(n))

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        ones = np.ones((len(clients), 1))
        return Scores(clients, np.ones(len(clients)), ones, ones)


class Counting(Silent):
    """Seven bytes for every call."""

    costs = Costs(bytes_down=100)  # of what went before

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        self.costs = self.costs.plus(bytes_down=7)
        return super().train(clients, models, which, seed, work)


CALL = (np.array([0, 1]), torch.zeros(1, 5), np.array([0, 0]), 0)


def test_costs_of_whole_models() -> None:
    """Two clients get 5 floats and send back 5, 3 losses and a number of 8 bytes; then each scores one sample."""
    meter = Meter(Silent(), 2)
    meter.train(*CALL)
    assert meter.costs == Costs(2 * 5 * 4, 2 * (5 * 4 + 3 * 4 + 8), 2, 6)
    meter.evaluate(*CALL[:3])
    assert meter.costs == Costs(2 * 2 * 5 * 4, 2 * (5 * 4 + 3 * 4 + 8) + 2 * 4, 2, 6, 2)


def test_samples_of_small_clients_are_all_that_they_have() -> None:
    """Three steps each: the batch of 4 uses 1 of client 0's single sample and as much of client 1's."""
    meter = Meter(Silent(), 2, LocalTraining(batch=4))
    meter.train(*CALL)
    assert meter.costs.samples == 2 * 3 * 1


def test_an_engine_that_counts_is_believed_also_after_a_run_was_resumed() -> None:
    meter = Meter(Counting(), 2)
    meter.costs = Costs(bytes_down=1000)  # of the run until it was interrupted
    meter.train(*CALL)
    meter.train(*CALL)
    assert meter.costs == Costs(bytes_down=1014)


def test_work_is_passed_on() -> None:
    engine, work = Silent(), Work(3)
    Meter(engine, 2).train(*CALL, work)
    assert engine.asked == [work]
