"""Speed on a CUDA card, for the paper's CIFAR-100 round: 10 clients x 7 steps of 64 images, its CNN.

    PYTHONPATH=src python3 -m benchmarks.gpu [--rounds N] [--profile]

Needs torch (with Triton) and scikit-learn, nothing else.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import json
import pstats
import statistics
import threading
import time

import numpy as np
import torch
from torch import nn

from benchmarks.made import cifar_like
from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.layout import Layout
from fedgwc.core.types import Rng
from fedgwc.core.work import LocalTraining
from fedgwc.data import Federation
from fedgwc.engines.meter import Meter
from fedgwc.engines.pool import Member, SharedEngine
from fedgwc.engines.settings import EngineSettings
from fedgwc.engines.simulator import Simulator
from fedgwc.models import MODELS

LOCAL = LocalTraining(steps=7, batch=64, lr=0.01, weight_decay=4e-4)


def rounds_per_second(engine: Simulator, name: str, rounds: int) -> dict[str, float]:
    """Milliseconds per round of the real loop: sampling, training, aggregation, rewards, trace."""
    algorithm, meter = ALGORITHMS[name], Meter(engine, engine.federation.n_clients)
    state = algorithm.init(engine.model.vector(), engine.federation.n_clients, Layout.unnamed(engine.model.size))
    times = []
    for t in range(1, rounds + 11):
        began = time.perf_counter()
        state = algorithm.round(state, meter, Rng(0, t))
        meter.clear()
        torch.cuda.synchronize()
        if t > 10:
            times.append(1e3 * (time.perf_counter() - began))
    return {"median": statistics.median(times), "mean": statistics.mean(times), "worst": max(times)}


def together(federation: Federation, module: nn.Module, runs: int, rounds: int, lanes: int = 0) -> float:
    """Milliseconds per round of `runs` FedAvg runs, all of them together."""
    pool = SharedEngine([federation] * runs, lambda f: Simulator(f, module, LOCAL, EngineSettings(device="cuda")), lanes)
    began = 0.0

    def go(member: Member, seed: int) -> None:
        nonlocal began
        algorithm, meter = ALGORITHMS["fedavg"], Meter(member, federation.n_clients)
        state = algorithm.init(member.model.vector(), federation.n_clients, Layout.unnamed(member.model.size))
        for t in range(1, rounds + 11):
            if t == 11 and seed == 0:
                torch.cuda.synchronize()
                began = time.perf_counter()
            state = algorithm.round(state, meter, Rng(seed, t))
            meter.clear()
        member.leave()

    threads = [threading.Thread(target=go, args=(m, i)) for i, m in enumerate(pool.members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - began) / rounds


def agreement(federation: Federation, module: nn.Module) -> dict[str, float]:
    """Largest difference of one cohort's models from the plain CPU loop, per way of running."""
    local = LocalTraining(steps=3, batch=64, lr=0.01, weight_decay=4e-4)
    clients, zeros = np.arange(0, 30, 10), np.zeros(3, np.int64)
    plain = Simulator(federation, module, local, EngineSettings(device="cpu", how="one-by-one"))
    start = plain.model.vector()[None]
    expected = plain.train(clients, start, zeros, 3).models
    moved = (expected - start).abs().max().item()
    out = {"moved": moved}
    for precision in ("float32", "tf32", "bf16"):
        for graphs in (True, False):
            engine = Simulator(federation, module, local, EngineSettings(device="cuda", precision=precision, graphs=graphs))
            got = engine.train(clients, start, zeros, 3)
            out[f"{precision} {'graph' if graphs else 'eager'} {engine.how}"] = (got.models.cpu() - expected).abs().max().item()
    return out


def profile(engine: Simulator) -> str:
    clients, zeros = np.arange(10), np.zeros(10, np.int64)
    start = engine.model.vector()[None]
    engine.train(clients, start, zeros, 0)
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as prof:
        for seed in range(3):
            engine.train(clients, start, zeros, seed)
        torch.cuda.synchronize()
    return str(prof.key_averages().table(sort_by="cuda_time_total", row_limit=26, max_name_column_width=60))


def host_profile(engine: Simulator) -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    rounds_per_second(engine, "auto", 50)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(22)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--profile", action="store_true", help="where the card and the host spend a round")
    arguments = parser.parse_args()
    federation = cifar_like()
    torch.manual_seed(0)
    module = MODELS["cnn"](federation.shape, federation.n_classes)
    print(torch.cuda.get_device_name(), torch.__version__)
    one = together(federation, module, 1, arguments.rounds)
    for runs, lanes in itertools.product((1, 3, 4, 8), (1, 2)):
        ms = together(federation, module, runs, arguments.rounds, lanes)
        said = f"{ms:.2f} ms a round, {ms / one:.2f} times one run, {ms / runs:.2f} ms per run"
        print(f"{runs} runs in {lanes} lanes: {said}", flush=True)
    print("agreement", json.dumps(agreement(federation, module), indent=1))
    for precision in ("tf32", "bf16", "float32"):
        engine = Simulator(federation, module, LOCAL, EngineSettings(device="cuda", precision=precision))
        for name in ("fedavg", "auto"):
            print(
                precision,
                name,
                engine.how,
                {k: round(v, 2) for k, v in rounds_per_second(engine, name, arguments.rounds).items()},
            )
        if arguments.profile and precision == "tf32":
            print(profile(engine))
            host_profile(engine)
        print("peak GiB", round(torch.cuda.max_memory_allocated() / 2**30, 2))


if __name__ == "__main__":
    main()
