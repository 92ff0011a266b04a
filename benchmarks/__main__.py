"""`make bench`: our ways of running a cohort beside a plain PyTorch loop, and the server's own work; ratios, interleaved."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.made import cifar_like
from benchmarks.plain import train_cohort
from fedgwc.data import digits
from fedgwc.data.federation import Federation
from fedgwc.engines.settings import EngineSettings, cores
from fedgwc.engines.simulate import Simulator
from fedgwc.interactions import affinity, fedgw_cluster, update_interactions
from fedgwc.local import LocalTraining
from fedgwc.models import MODELS

REPEATS = 3
COHORT = np.arange(0, 100, 10)


def interleaved(ways: dict[str, Callable[[], object]], times: int) -> dict[str, list[float]]:
    """Seconds per call of each way, repeated in turns, so that what else the machine does hits all alike."""
    for way in ways.values():
        way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, way in ways.items():
            began = time.perf_counter()
            for _ in range(times):
                way()
            seconds[name].append((time.perf_counter() - began) / times)
    return seconds


def cohort_ways(federation: Federation, model: str, local: LocalTraining, hows: list[str]) -> dict[str, Callable[[], object]]:
    torch.manual_seed(0)
    module = MODELS[model](federation.shape, federation.n_classes)
    ways: dict[str, Callable[[], object]] = {
        "plain PyTorch loop": lambda: train_cohort(federation, module, local, COHORT.tolist())
    }
    for how in hows:
        engine = Simulator(federation, module, local, EngineSettings(device="cpu", how=how))  # type: ignore[arg-type]
        start, zeros = engine.model.vector()[None], np.zeros(len(COHORT), np.int64)
        ways[f"fedgwc, {how}"] = lambda e=engine, s=start, z=zeros: e.train(COHORT, s, z, 1)  # type: ignore[misc]
    return ways


def server_ways(K: int) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(0)
    P, rewards, cohort = rng.random((K, K)), rng.random(10), rng.choice(K, 10, replace=False)
    return {
        f"update_interactions in place, K={K}": lambda: update_interactions(P, cohort, rewards, 0.1, out=P),
        f"affinity, K={K}": lambda: affinity(P, 0.5),
        f"fedgw_cluster (affinity included), K={K}": lambda: fedgw_cluster(P, 0.5, score="embedding", assign="cluster_qr"),
    }


def double_loop(K: int = 500) -> dict[str, Callable[[], object]]:
    P = np.random.default_rng(0).random((K, K))

    def pairs() -> None:
        for k in range(K):
            for j in range(k):
                keep = np.ones(K, bool)
                keep[[k, j]] = False
                np.exp(-0.5 * ((P[k, keep] - P[j, keep]) ** 2).sum())

    return {f"a loop over pairs, K={K}": pairs, f"affinity, K={K}": lambda: affinity(P, 0.5)}


def tell(title: str, seconds: dict[str, list[float]]) -> None:
    print(f"\n{title}")
    first = statistics.median(next(iter(seconds.values())))
    for name, values in seconds.items():
        middle = statistics.median(values)
        spread = f"{1e3 * min(values):.2f} to {1e3 * max(values):.2f}"
        print(f"  {name:45} {1e3 * middle:10.2f} ms ({spread})   {first / middle:6.1f} x")


def main() -> None:
    print(
        f"{cores()} cores, torch {torch.__version__}, medians of {REPEATS} interleaved repeats; x = times the first line's speed"
    )
    small = LocalTraining(steps=4, batch=16, lr=0.1)
    tell(
        "10 clients x 4 steps of 16, MLP 64-32-10",
        interleaved(cohort_ways(digits(seed=0), "mlp", small, ["one-by-one", "stacked"]), 20),
    )
    paper = LocalTraining(steps=7, batch=64, lr=0.01, weight_decay=4e-4)
    images = cifar_like(augment=False)
    tell(
        "10 clients x 7 steps of 64, the paper's CNN",
        interleaved(cohort_ways(images, "cnn", paper, ["one-by-one", "workers"]), 1),
    )
    tell("The server, 2,714 clients", interleaved(server_ways(2714), 1))
    tell("All pairs of 500 clients", interleaved(double_loop(), 1))


if __name__ == "__main__":
    main()
