"""What the host does in a round beside the training itself: microseconds of CPU time.

    PYTHONPATH=src:. python3 -m benchmarks.host [--blocks N] [--profile]

Clients are not trained: a stand-in hands out prepared results of 10 clients x 7 steps. The bare loop is `algorithm.round` with a
`Meter`; the run is the loop of `fedgwc run`, with its folder, its trace and its progress. A number is the best of blocks of 50
rounds, because other processes disturb the rest; the end of windows of `auto` is therefore not in it.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedgwc.algorithms.aggregate import Aggregator
from fedgwc.algorithms.auto import algorithm as auto
from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.auto.beginnings import children
from fedgwc.algorithms.method import Method
from fedgwc.core.layout import Layout
from fedgwc.core.types import Rng
from fedgwc.engines.meter import Meter
from fedgwc.engines.simulator import Simulator
from fedgwc.engines.transfer import Reading
from fedgwc.runs.driver import Driver
from fedgwc.runs.experiment import Experiment, load
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.interrupt import PoliteInterrupt
from fedgwc.runs.loop import PreparedRun
from fedgwc.runs.progress import Lines

BLOCK = 50  # rounds
PARTS: dict[str, list[tuple[type | ModuleType, str]]] = {
    "sampling, and what follows below": [(Method, "advance"), (Auto, "advance")],
    "the engine around its program": [(Simulator, "train")],
    "meter": [(Meter, "train")],
    "aggregation": [(Aggregator, "step"), (Aggregator, "steps")],
    "auto: readings and P": [(auto, "learnt")],
    "auto: time to split?": [(Auto, "attempt")],
    "trace, progress, events": [(Driver, "keep")],
}


class StandIn:
    """Takes the place of a stacked training: the same shapes, at once."""

    def __init__(self, n_params: int, steps: int = 7, sets: int = 64) -> None:
        rng = np.random.default_rng(0)
        losses = np.linspace(2.5, 2, steps) + rng.normal(0, 0.2, (sets, 100, steps))
        theta = torch.from_numpy(rng.normal(size=(100, n_params)).astype(np.float32))
        reports = [torch.cat([torch.from_numpy(x), theta.sum(1, keepdim=True)], 1) for x in losses.astype(np.float32)]
        self.results = [cycle([(theta[:n], Reading(report[:n])) for report in reports]) for n in range(101)]

    def __call__(self, ids: Tensor, *_: Any) -> tuple[Tensor, Reading]:
        return next(self.results[len(ids)])


def job(algorithm: str, rounds: int) -> Experiment:
    settings = {"local": {"steps": 7}, "model": {"name": "mlp", "hidden": [2]}, "engine": {"how": "stacked", "device": "cpu"}}
    data = {"name": "digits", "train_size": 12, "test_size": 5, "groups": [{"clients": 100}]}
    every = {"every": rounds, "checkpoint_seconds": 3600}
    return load({"rounds": rounds, "data": data, "algorithm": {"name": algorithm}, "evaluate": every, **settings})


def engine_of(experiment: Experiment) -> Simulator:
    engine = experiment.simulator(experiment.federation())
    engine._stacked = StandIn(engine.model.size)  # type: ignore[assignment]
    return engine


class Clock(Lines):
    """CPU time at the end of every block."""

    def start(self, title: str, n_rounds: int, done: int, folder: Path | None = None) -> None:
        super().start(title, n_rounds, done, folder)
        self.times: list[float] = []

    def round(self, number: int, loss: float, n_clusters: int) -> None:
        super().round(number, loss, n_clusters)
        if number % BLOCK == 0:
            self.times.append(time.process_time())

    def message(self, text: str) -> None: ...

    def best(self) -> float:
        """Microseconds per round."""
        return float(np.diff(self.times).min()) / BLOCK * 1e6


def bare(name: str, blocks: int, n_clusters: int = 1) -> float:
    experiment = job(name, (blocks + 1) * BLOCK)
    engine, clock = engine_of(experiment), Clock()
    meter, algorithm = Meter(engine, engine.federation.n_clients), experiment.algorithm
    state: Any = algorithm.init(engine.model.vector(), engine.federation.n_clients, Layout.unnamed(engine.model.size))
    step = getattr(algorithm, "advance", algorithm.round)
    if n_clusters > 1:  # as a run has them after its splits
        assert isinstance(algorithm, Auto)
        state = type(state)(
            tuple(children(algorithm, state.clusters[0], np.arange(100) % n_clusters, {}, 1, 0)),
            (),
            state.sampled,
            n_clusters + 1,
        )
    clock.start(name, experiment.rounds, 0)
    for t in range(1, experiment.rounds + 1):
        state = step(state, meter, Rng(0, t))
        meter.clear()
        clock.round(t, 0.0, 1)
    return clock.best()


def whole(name: str, blocks: int) -> float:
    experiment, clock = job(name, (blocks + 1) * BLOCK), Clock()
    with tempfile.TemporaryDirectory() as folder:
        run = PreparedRun(experiment, RunFolder(Path(folder) / "run"), False)
        run.site.use(engine_of(experiment))
        run.go(clock, PoliteInterrupt())
    return clock.best()


CASES: dict[str, Callable[[int], float]] = {
    "fedavg, bare loop": lambda blocks: bare("fedavg", blocks),
    "fedavg, run": lambda blocks: whole("fedavg", blocks),
    "auto, bare loop": lambda blocks: bare("auto", blocks),
    "auto, run": lambda blocks: whole("auto", blocks),
    "auto, bare loop, 12 clusters": lambda blocks: bare("auto", blocks, 12),
    "auto, bare loop, 17 clusters": lambda blocks: bare("auto", blocks, 17),
    "auto, bare loop, 50 clusters": lambda blocks: bare("auto", blocks, 50),  # of two clients: none has a P
}


@contextmanager
def watched() -> Iterator[Counter[str]]:
    """Nanoseconds in each part, without the parts that it calls. The watching itself takes a microsecond per call."""
    spent: Counter[str] = Counter()
    stack, since = [""], time.perf_counter_ns()

    def turn() -> None:
        nonlocal since
        now = time.perf_counter_ns()
        spent[stack[-1]] += now - since
        since = now

    def timed(label: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            turn()
            stack.append(label)
            try:
                return inner(*args, **more)
            finally:
                turn()
                stack.pop()

        return call

    places = [(label, owner, name, getattr(owner, name)) for label, owners in PARTS.items() for owner, name in owners]
    for label, owner, name, inner in places:
        setattr(owner, name, timed(label, inner))
    try:
        yield spent
    finally:
        for _, owner, name, inner in places:
            setattr(owner, name, inner)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--profile", action="store_true", help="every function, and the parts of a round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, measure in CASES.items():
        print(f"{name:32s} {measure(arguments.blocks):7.1f} us per round", flush=True)
    if not arguments.profile:
        return
    for name, measure in CASES.items():
        with watched() as spent:
            measure(arguments.blocks)
        print(f"\n{name}, us per round on average")
        for part in PARTS:
            if spent[part]:
                print(f"  {part:36s} {spent[part] / 1e3 / BLOCK / (arguments.blocks + 1):7.1f}")
    for name in ("fedavg, run", "auto, run"):
        with cProfile.Profile() as profiler:
            CASES[name](arguments.blocks)
        print(f"\n{name}")
        pstats.Stats(profiler).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    main()
