"""What a large federation may take, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

CLUSTERS = """
import resource
import numpy as np
from fedgwc.algorithms.fedgwc.clustering import fedgw_cluster
from fedgwc.metrics import adjusted_rand_index

rng = np.random.default_rng(0)
truth = rng.integers(0, 4, 6000)
P = rng.random((6000, 6000), dtype=np.float32)
P *= 0.1
P += 0.02 * (truth[:, None] == truth)
fedgw_cluster(P[:50, :50], 0.5, score="embedding", assign="cluster_qr")  # everything is imported

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

before = peak()
labels, _ = fedgw_cluster(P, 0.5, score="embedding", assign="cluster_qr")
print(adjusted_rand_index(truth, labels), (peak() - before) / P.nbytes)
"""

COHORT = """
import resource
import sys
from pathlib import Path
import numpy as np
import torch
from torch import nn
from fedgwc.data import Federation, Rows
from fedgwc.engines.settings import EngineSettings
from fedgwc.engines.simulator import Simulator
from fedgwc.core.work import LocalTraining
import multiprocessing

n, features = 100, 1000
x, y = torch.randn(n * 8, features), torch.arange(n * 8) % 10
train, test = np.arange(n * 8).reshape(n, 8)[:, :6], np.arange(n * 8).reshape(n, 8)[:, 6:]
federation = Federation(x, y, Rows.of(list(train)), Rows.of(list(test)), 10)
module = nn.Sequential(nn.Linear(features, 4950), nn.ReLU(), nn.Linear(4950, 10))
engine = Simulator(federation, module, LocalTraining(steps=2, batch=4), EngineSettings(how=sys.argv[1], device="cpu"))
del module
updates = engine.train(np.arange(n), engine.model.vector()[None], np.zeros(n, np.int64), 1)

def private(pid):
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private"))

workers = sum(private(p.pid) for p in multiprocessing.active_children())
print(engine.model.size, len(updates), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + workers) / 2**20)
"""


def measured(code: str, *args: str) -> list[float]:
    out = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True).stdout
    return [float(number) for number in out.split()]


def test_clustering_many_clients_needs_little_beside_the_interactions() -> None:
    """6,000 clients: the affinity is as large as P in float32, and blocks and eigenvectors come on top."""
    agreement, more = measured(CLUSTERS)
    assert agreement == 1.0
    assert more < 3  # times the size of P


@pytest.mark.parametrize("how", ["stacked", "one-by-one", "workers"])
def test_a_cohort_of_large_models_is_held_once(how: str) -> None:
    """100 clients with 5 million parameters each: 1.9 GiB of updates, and what a few clients need at a time."""
    size, answered, peak = measured(COHORT, how)
    assert size > 5_000_000
    assert answered == 100
    assert peak < 6  # GiB
