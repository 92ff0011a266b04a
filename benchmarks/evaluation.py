"""How long it takes to score several models: what IFCA asks in every round, and what a run asks of its clusters now and then.

    PYTHONPATH=src:. python3 -m benchmarks.evaluation [--calls N] [--profile] [--smoke]

10 clients x 500 images x 5 models, then 100 clients x 100 images over 1, 12 and 50 models, for the paper's CNN, on a GPU where
there is one. Needs torch (with Triton), scikit-learn and safetensors, nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.made import cifar_like
from fedgwc.algorithms.ifca import IFCA
from fedgwc.algorithms.method import Method
from fedgwc.core.layout import Layout
from fedgwc.core.types import Rng, Scores
from fedgwc.core.work import LocalTraining
from fedgwc.engines.settings import EngineSettings
from fedgwc.engines.simulator import Simulator
from fedgwc.models import MODELS

K = 5
WAYS = {
    "one model after the other": {"how": "one-by-one"},
    "stacked": {"how": "stacked", "graphs": False},
    "stacked, recorded": {"how": "stacked", "graphs": True},
}


def milliseconds(work: Callable[[], object], calls: int) -> float:
    """Median, after three calls that compile and record."""
    times = []
    for _ in range(calls + 3):
        began = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[3:])


def questions(engine: Simulator, models: torch.Tensor) -> dict[str, Callable[[], Scores]]:
    n = engine.federation.n_clients
    cohort, everybody = np.arange(0, n, n // 10), np.arange(n)
    ifca = (np.repeat(cohort, K), models[:K], np.tile(np.arange(K), len(cohort)))
    asked: dict[str, Callable[[], Scores]] = {f"IFCA's question, {K} models": lambda: engine.evaluate(*ifca, split="train")}
    for m in (1, 12, 50):
        asked[f"test of {m} clusters"] = lambda m=m: engine.evaluate(everybody, models[:m], everybody % m)  # type: ignore[misc]
    return asked


def ifca_rounds(engine: Simulator, models: torch.Tensor, calls: int) -> float:
    algorithm = Method(IFCA(k=K))
    state, number = algorithm.init(models[:K], engine.federation.n_clients, Layout.unnamed(engine.model.size)), 0

    def one() -> None:
        nonlocal state, number
        number += 1
        state = algorithm.round(state, engine, Rng(0, number))

    return milliseconds(one, calls)


def profile(work: Callable[[], object]) -> str:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]) as prof:
        for _ in range(3):
            work()
        torch.cuda.synchronize()
    return str(prof.key_averages().table(sort_by="cuda_time_total", row_limit=20, max_name_column_width=60))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--profile", action="store_true", help="where the card spends IFCA's question")
    parser.add_argument("--smoke", action="store_true", help="a few images of a few clients: does it run?")
    arguments = parser.parse_args()
    federation = cifar_like(20, 10, 5) if arguments.smoke else cifar_like()
    torch.manual_seed(0)
    module = MODELS["cnn"](federation.shape, federation.n_classes)
    print(torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", torch.__version__)
    exact: dict[str, Scores] = {}
    for precision in ("float32", "tf32"):
        for way, settings in WAYS.items():
            torch.manual_seed(0)
            local = LocalTraining(steps=7, batch=64, lr=0.01, weight_decay=4e-4)
            engine = Simulator(federation, module, local, EngineSettings(precision=precision, **settings))  # type: ignore[arg-type]
            start = engine.model.vector()
            models = start + 0.02 * torch.randn(50, len(start)).to(start.device)
            print(f"\n{precision}, {way}")
            for name, ask in questions(engine, models).items():
                ms, scores = milliseconds(ask, arguments.calls), ask()
                reference = exact.setdefault(name, scores)
                off = np.abs(scores.loss / reference.loss - 1).max()
                print(f"  {name}: {ms:.2f} ms; losses {off:.1e} off float32, one after the other", flush=True)
            print(f"  a round of IFCA, k = {K}: {ifca_rounds(engine, models, arguments.calls):.2f} ms", flush=True)
            if torch.cuda.is_available():
                print(f"  peak GiB {torch.cuda.max_memory_allocated() / 2**30:.2f}")
                torch.cuda.reset_peak_memory_stats()
                if arguments.profile and precision == "tf32":
                    print(profile(next(iter(questions(engine, models).values()))))


if __name__ == "__main__":
    main()
