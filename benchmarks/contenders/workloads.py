"""What every contender does: the same made data, model and local training, and one line of JSON at the end."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median

import torch
from torch import Tensor, nn

from fedgwc.models import cnn, mlp

COHORT = 10


@dataclass(frozen=True)
class Workload:
    title: str
    model: Callable[[tuple[int, ...], int], nn.Module]
    shape: tuple[int, ...]
    n_classes: int
    n_clients: int
    steps: int
    batch: int
    lr: float
    warm_up: int  # rounds not counted
    rounds: int
    threads: int  # of PyTorch, where one process does it all; small products only wait for a second one

    @property
    def size(self) -> int:
        """Samples of a client: one pass over them makes the steps, so that no loop has to begin again."""
        return self.steps * self.batch

    @cache  # noqa: B019 (there are two workloads, and they live as long as the process)
    def client(self, k: int) -> tuple[Tensor, Tensor]:
        own = torch.Generator().manual_seed(k)
        x = torch.randn(self.size, *self.shape, generator=own)
        return x, torch.randint(self.n_classes, (self.size,), generator=own)

    def module(self) -> nn.Module:
        torch.manual_seed(0)
        return self.model(self.shape, self.n_classes)


WORKLOADS = {
    "mlp": Workload("10 clients x 4 steps of 16, MLP 64-32-10", mlp, (64,), 10, 100, 4, 16, 0.1, 30, 100, 1),
    "cnn": Workload("10 clients x 7 steps of 64, the paper's CNN on 3x32x32", cnn, (3, 32, 32), 100, 20, 7, 64, 0.01, 1, 3, 2),
}


def asked() -> Workload:
    return WORKLOADS[sys.argv[1]]


def tell(ends: list[float], workload: Workload) -> None:
    """`ends`: when each round ended. The clock is the machine's, so `BEGAN` is when whoever asked started this process."""
    counted = [b - a for a, b in pairwise(ends[workload.warm_up - 1 :])]
    start = ends[0] - float(os.environ.get("BEGAN", ends[0]))
    print(json.dumps({"seconds": median(counted), "start": start}), flush=True)


def run(workload: Workload, one_round: Callable[[], object]) -> None:
    ends = []
    for _ in range(workload.warm_up + workload.rounds):
        one_round()
        ends.append(time.perf_counter())
    tell(ends, workload)
