"""The server's own work for many clients: interactions, affinity and clusters. One question per process, as JSON."""

from __future__ import annotations

import json
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.auto.state import Cluster
from fedgwc.algorithms.fedgwc.clustering import fedgw_cluster
from fedgwc.algorithms.fedgwc.interactions import affinity, update_interactions
from fedgwc.core.layout import Layout
from fedgwc.metrics import adjusted_rand_index


def planted(K: int) -> tuple[np.ndarray, np.ndarray]:
    """An interaction matrix of four groups under noise, and the groups."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, K)
    P = rng.random((K, K), dtype=np.float32)
    for rows in np.array_split(np.arange(K), max(1, K // 1000)):
        P[rows] = 0.4 + 0.1 * P[rows] + 0.02 * (truth[rows, None] == truth)
    return P, truth


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def clusters(K: int) -> dict[str, float]:
    P, truth = planted(K)
    began = time.perf_counter()
    labels, _ = fedgw_cluster(P, 500.0 / K, score="embedding", assign="cluster_qr")
    took = time.perf_counter() - began
    return {"seconds": took, "gib": peak(), "agreement": adjusted_rand_index(truth, labels)}


def window_of_pairs(K: int) -> dict[str, float]:
    """The end of a later window of the default, with the state it needs: means of all pairs, distances and echoes until then."""
    algorithm = Auto(pairs_up_to=K)
    cluster = algorithm.init(torch.zeros(1), K, Layout.unnamed(1)).clusters[0]
    assert cluster.sides is not None
    assert cluster.spreads is not None
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, K)
    assert cluster.echo is not None
    for rows in np.array_split(np.arange(K), max(1, K // 1000)):
        shape = (len(rows), K)
        cluster.visits[rows] = rng.integers(0, 6, shape)  # three on average, and some pairs have never met
        cluster.sides[rows] = 0.3 + 0.2 * rng.random(shape, np.float32) + 0.2 * truth[rows, None]
        cluster.spreads[rows] = cluster.P[rows] = 0.4 + 0.2 * rng.random(shape, np.float32)
        cluster.echo[rows] = rng.standard_normal(shape, np.float32)
    np.fill_diagonal(cluster.visits, 30)
    return end_of_window(algorithm, replace(cluster, distances=np.zeros_like(cluster.P)), truth)


def window_of_clients(K: int) -> dict[str, float]:
    """The same by client, after 20 windows."""
    algorithm = Auto(pairs_up_to=0)
    cluster = algorithm.init(torch.zeros(1), K, Layout.unnamed(1)).clusters[0]
    assert cluster.sides is not None
    assert cluster.spreads is not None
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, K)
    cluster.visits[:] = rng.poisson(30, K)
    cluster.sides[:] = 0.3 + 0.2 * rng.random(K) + 0.2 * truth
    cluster.spreads[:] = 0.4 + 0.2 * rng.random(K)
    paths = 0.4 + 0.2 * rng.random((K, 40)) + 0.2 * np.outer(truth, np.arange(40) % 2)
    return end_of_window(algorithm, replace(cluster, paths=paths), truth)


def end_of_window(algorithm: Auto, cluster: Cluster, truth: np.ndarray) -> dict[str, float]:
    K = len(cluster.members)
    over = replace(cluster, ripe=K * K, heard=1, apart=1, cut=truth)  # whatever the next cut, there is one to compare it with
    began = time.perf_counter()
    labels = algorithm.attempt(over).labels
    took = time.perf_counter() - began
    return {"seconds": took, "gib": peak(), "agreement": adjusted_rand_index(truth, np.zeros(K) if labels is None else labels)}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def pairs(K: int) -> dict[str, float]:
    """`affinity` against a loop over pairs that does the same."""
    P = np.random.default_rng(0).random((K, K))

    def loop() -> None:
        for k in range(K):
            for j in range(k):
                keep = np.ones(K, bool)
                keep[[k, j]] = False
                np.exp(-0.5 * ((P[k, keep] - P[j, keep]) ** 2).sum())

    affinity(P, 0.5)
    return {"seconds": min(seconds(lambda: affinity(P, 0.5)) for _ in range(5)), "loop": seconds(loop)}


def update(K: int) -> dict[str, float]:
    P, rng = planted(K)[0], np.random.default_rng(0)
    cohort, rewards = rng.choice(K, 10, replace=False), rng.random(10)
    return {"seconds": min(seconds(lambda: update_interactions(P, cohort, rewards, 0.1, out=P)) for _ in range(20))}


QUESTIONS = {
    "clusters": clusters,
    "window of pairs": window_of_pairs,
    "window of clients": window_of_clients,
    "pairs": pairs,
    "update": update,
}


def table(measured: Callable[[list[str]], dict[str, float]]) -> str:
    def ask(question: str, K: int) -> dict[str, float]:
        command = [sys.executable, "-m", "benchmarks.server", question, str(K)]
        answers = [measured(command) for _ in range(5 if K < 20000 else 1)]  # a busy machine only ever makes it slower
        print(question, K, answers, flush=True)
        return min(answers, key=lambda a: a["seconds"])

    lines = ["| the server | seconds | peak memory |", "|---|---:|---:|"]
    lines.append(f"| `update_interactions(..., out=P)`, 2,714 clients, cohort of 10 | {ask('update', 2714)['seconds']:.2g} | |")
    for K in (2714, 20000):
        a = ask("clusters", K)
        lines.append(
            f"| `fedgw_cluster` for n = 2..5, affinity included, {K:,} clients in four groups (ARI {a['agreement']:.2f}) "
            f"| {a['seconds']:.3g} | {a['gib']:.1f} GiB |"
        )
    for K in (100, 2714, 20000):
        a = ask("window of pairs", K)
        lines.append(
            f"| the end of a window, {K:,} clients by pairs, their state included | {a['seconds']:.3g} | {a['gib']:.1f} GiB |"
        )
    for K in (20000, 100000):
        a = ask("window of clients", K)
        lines.append(f"| the same by client, {K:,} clients | {a['seconds']:.3g} | {a['gib']:.1f} GiB |")
    a = ask("pairs", 500)
    lines.append(f"| `affinity` of 500 clients ({a['loop'] / a['seconds']:.0f} times a loop over pairs) | {a['seconds']:.2g} | |")
    return "\n".join(lines) + "\n"


def processor() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    )
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    print(json.dumps(QUESTIONS[sys.argv[1]](int(sys.argv[2]))))
