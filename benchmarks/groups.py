"""Which groups `evidence` finds, how soon, and how often it divides a federation that has none.

    python -m benchmarks.groups silos single readme liars five --first 1100 --jobs 16        # on a CPU
    python -m benchmarks.groups simulated                             # 2,000 clouds of each kind, no training
    python -m benchmarks.groups cifar100 --first 1000 --seeds 5       # needs CIFAR-100 in $FEDGWC_DATA, and a GPU

Each row is printed as it is finished; results/groups/NAME.json holds every finished run with seed, settings and commit.
Seeds below 1000 were for design.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.evidence.cuts import HOLDS, best_cut
from fedgwc.algorithms.evidence.cuts import Evidence as Known
from fedgwc.algorithms.method import Method
from fedgwc.core.protocols import Engine
from fedgwc.core.settings import override, plain
from fedgwc.core.types import Ids, Rng, Scores, Split, Updates
from fedgwc.core.work import LocalTraining, Work
from fedgwc.data.federation import Federation
from fedgwc.data.rows import Rows
from fedgwc.engines.settings import EngineSettings
from fedgwc.engines.simulator import Simulator
from fedgwc.io.atomic import write_atomically
from fedgwc.metrics import adjusted_rand_index
from fedgwc.runs.experiment import load

ROOT = Path(__file__).parents[1]
FEDERATIONS = 2000  # simulated ones, of each kind


@dataclass(frozen=True)
class Case:
    """A federation of one seed, its groups, and how long it trains."""

    name: str
    build: Callable[[int], tuple[Any, Ids]]  # seed -> engine, groups
    rate: float
    rounds: int


class Liars:
    """An engine some of whose clients report random losses, one of them 1e6."""

    def __init__(self, engine: Simulator, liars: Ids, seed: int) -> None:
        self.engine, self.liars, self.draw = engine, liars, np.random.default_rng(seed)
        self.layout = engine.layout

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        updates = self.engine.train(clients, models, which, seed, work)
        losses = updates.losses.clone()
        losses[np.isin(updates.clients, self.liars)] = float(self.draw.uniform(0, 10))
        losses[updates.clients == self.liars[0]] = 1e6
        return replace(updates, losses=losses)

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        scores = self.engine.evaluate(clients, models, which, split)
        lies = np.where(scores.clients == self.liars[0], 1e6, self.draw.uniform(0, 10, len(scores.clients)))
        return replace(scores, loss=np.where(np.isin(scores.clients, self.liars), lies, scores.loss))


def silos(
    n: int, groups: int, kind: str, sizes: tuple[int, ...], images: int, alpha: float, unequal: bool, seed: int
) -> tuple[Simulator, Ids]:
    """Deal scikit-learn's digits to n silos: 55 % train, 15 % validate, 30 % test."""
    from sklearn.datasets import load_digits

    draw, digits = np.random.default_rng(seed), load_digits()
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32), digits.target.copy()
    truth = np.repeat(np.arange(groups), sizes) if sizes else np.arange(n) % groups
    parts = dealt(y, n, alpha, unequal, draw)
    codes = [np.arange(10), *(draw.permutation(10) for _ in range(groups - 1))]
    for group, part in zip(truth, parts, strict=True):
        if kind == "codes":
            y[part] = codes[group][digits.target[part]]
        elif kind == "rotations":
            x[part] = torch.rot90(x[part].view(-1, 8, 8), int(group), (1, 2)).reshape(-1, 64)
        elif kind == "inverted" and group:
            x[part] = 1 - x[part] if group == 1 else x[part].view(-1, 8, 8).flip(2).reshape(-1, 64)
    parts = [draw.permutation(p)[: images or None] for p in parts]
    cut = [np.split(p, [int(0.55 * len(p)), int(0.7 * len(p))]) for p in parts]
    train, validation, test = (Rows.of([np.sort(p) for p in split]) for split in zip(*cut, strict=True))
    federation = Federation(x, torch.from_numpy(y), train, test, 10, validation=validation)
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    return Simulator(federation, net, LocalTraining(epochs=1, batch=10, lr=0.1), EngineSettings(device="cpu")), truth


def dealt(y: Ids, n: int, alpha: float, unequal: bool, draw: np.random.Generator) -> list[Ids]:
    if unequal:
        share = draw.lognormal(0, 0.8, n)
        share = np.maximum(share / share.sum(), 20 / len(y))
        return np.split(draw.permutation(len(y)), (np.cumsum(share / share.sum())[:-1] * len(y)).astype(int))
    if not alpha:
        return np.array_split(draw.permutation(len(y)), n)
    stocks = [list(draw.permutation(np.flatnonzero(y == c))) for c in range(10)]
    parts = []
    for mix in draw.dirichlet(np.full(10, alpha), n):
        wanted = draw.choice(10, len(y) // n, p=mix)
        parts.append(np.array([(stocks[c] or max(stocks, key=len)).pop() for c in wanted]))
    return parts


def made(n: int, groups: int = 1, kind: str = "codes", rate: float = 1.0, rounds: int = 30, **more: Any) -> Case:
    given = {"sizes": (), "images": 0, "alpha": 0.0, "unequal": False, **more}
    told = ", ".join(f"{key} {value}" for key, value in more.items())
    name = f"{n} silos, {groups} of {kind}, rate {rate:g}{', ' if told else ''}{told}"
    return Case(name, partial(silos_of, n, groups, kind, given), rate, rounds)


def silos_of(n: int, groups: int, kind: str, given: dict[str, Any], seed: int) -> tuple[Simulator, Ids]:
    return silos(n, groups, kind, seed=seed, **given)


def recipe(name: str, rate: float, rounds: int, *sets: str, liars: int = 0) -> Case:
    def build(seed: int) -> tuple[Any, Ids]:
        job = load(name, [f"seed={seed}", "data.newcomers=0.0", "data.validation=0.2", *sets])
        federation = job.federation()
        engine: Any = job.simulator(federation)
        if liars:
            draw = np.random.default_rng([seed, 1])
            engine = Liars(engine, np.sort(draw.choice(federation.n_clients, liars, replace=False)), seed)
        return engine, federation.known_groups

    return Case(" ".join([name, *sets, f"{liars} liars" if liars else ""]).strip(), build, rate, rounds)


KINDS = ("codes", "rotations", "inverted")
SILOS: list[dict[str, Any]] = [
    {"n": 6, "groups": 2},
    {"n": 12, "groups": 3},
    {"n": 18, "groups": 3},
    {"n": 20, "groups": 2},
    {"n": 30, "groups": 2, "sizes": (25, 5)},
]
SINGLE: list[dict[str, Any]] = [{}, {"unequal": True}, {"alpha": 10.0}, {"alpha": 1.0}, {"alpha": 0.1}]
DOMAINS = "cifar100-dom-40-30-30"
CASES: dict[str, list[Case]] = {
    "silos": [made(kind=kind, rate=rate, **silo) for silo in SILOS for kind in KINDS for rate in (1.0, 0.5)],
    "single": [made(n, rate=rate, **more) for more in SINGLE for n in (6, 12, 18, 30) for rate in (1.0, 0.5)],
    "five": [made(30, 5, kind, rate, 100, images=42) for kind in ("codes",) for rate in (1.0, 0.5)],
    "readme": [recipe("digits", 0.1, 120)],
    "liars": [recipe("digits", 0.1, 120, liars=15)],
    "cifar100": [
        recipe("cifar100", 0.1, 800, 'data.groups=[{clients=70,partition="iid"},{clients=30,partition="iid",relabel=1}]'),
        recipe("cifar100-dom-50-50-0", 0.1, 800),
        recipe("cifar100-dom-50-0-50", 0.1, 3000),
        recipe(DOMAINS, 0.1, 6000),
        recipe("cifar100-het-10-0-90", 0.1, 1500),
        recipe("cifar100-het-10-90-0", 0.1, 1500),
    ],
}


def play(case: Case, seed: int) -> dict[str, Any]:
    """Train one federation: what was found, and when."""
    began = time.process_time()
    engine, truth = case.build(seed)
    algorithm = override(ALGORITHMS["evidence"], {"rate": case.rate}, "algorithm")
    assert isinstance(algorithm, Method)
    simulator = engine.engine if isinstance(engine, Liars) else engine
    honest = np.setdiff1d(np.arange(len(truth)), engine.liars if isinstance(engine, Liars) else [])
    state: Any = algorithm.init(simulator.model.vector(), len(truth), simulator.layout)
    found: list[tuple[int, float, float, int]] = []
    ever = np.zeros((2, len(truth)), bool)  # seen in either half
    for number in range(1, case.rounds + 1):
        state = algorithm.advance(state, _typed(engine), Rng(seed, number))
        groups = state.groups
        ever |= groups.visits > 0
        if groups.decisions or not number % 10:
            met = honest[ever[:, honest].all(0)]
            all_of, met_of = (round(adjusted_rand_index(truth[who], groups.label[who]), 4) for who in (honest, met))
            found.append((number, all_of, met_of, len(groups.groups)))
    last = found[-1]
    met_exact = next((row[0] for row in found if all(later[2] == 1 for later in found[found.index(row) :])), None)
    exact = next((row[0] for row in found if all(later[1] == 1 for later in found[found.index(row) :])), None)
    divided = any(row[3] > 1 for row in found)
    seconds = round(time.process_time() - began, 2)
    when = {"exact": exact, "exact_of_seen": met_exact, "divided": divided}
    return {"seed": seed, "ari": last[1], "groups": last[3], **when, "cpu": seconds, "found": found}


def _typed(engine: Any) -> Engine:
    return engine  # type: ignore[no-any-return]


def line(case: Case, runs: list[dict[str, Any]], single: bool) -> str:
    n = len(runs)
    if single:
        return f"| {case.name} | {sum(r['divided'] for r in runs)} of {n} divided |"
    when = sorted(r["exact"] for r in runs if r["exact"])
    exact = f"{len(when)} of {n} exact"
    return f"| {case.name} | {exact} | {f'round {when[len(when) // 2]}' if when else ''} | {min(r['ari'] for r in runs):.2f} |"


def played(task: tuple[str, int, int]) -> tuple[str, int, dict[str, Any]]:
    """Train the federation of a case's number and a seed."""
    torch.set_num_threads(1)
    name, number, seed = task
    return name, number, play(CASES[name][number], seed)


def rows(names: Sequence[str], first: int, seeds: int, jobs: int, commit: str) -> None:
    """Train all cases, `jobs` at a time, and keep what is finished."""
    tasks = [(name, i, seed) for name in names for seed in range(first, first + seeds) for i in range(len(CASES[name]))]
    settings = plain(ALGORITHMS["evidence"])
    kept: dict[str, Any] = {name: {"commit": commit, "settings": settings, "runs": {}} for name in names}
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for name, number, run in pool.map(played, tasks) if jobs > 1 else map(played, tasks):
            case = CASES[name][number]
            of_case = kept[name]["runs"].setdefault(case.name, {"rounds": case.rounds, "seeds": []})["seeds"]
            of_case.append(run)
            write_atomically(ROOT / "results/groups" / f"{name}.json", json.dumps(kept[name], indent=1).encode())
            if len(of_case) == seeds:
                print(line(case, of_case, name == "single"), flush=True)


CLOUDS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "gaussian": lambda draw, n: draw.standard_normal((n, WIDTH)) / np.arange(1, WIDTH + 1),
    "heavy tails, t with 3 degrees": lambda draw, n: draw.standard_t(3, (n, WIDTH)) / np.arange(1, WIDTH + 1),
    **{f"label mixes, Dirichlet {a:g}": partial(lambda a, draw, n: mixes(a, draw, n), a) for a in (0.1, 1.0, 10.0, 1000.0)},
}
WIDTH = 40  # numbers of a simulated sketch


def mixes(alpha: float, draw: np.random.Generator, n: int) -> Any:
    """Place clients by their mix of ten labels, with a spread of 1."""
    places = draw.dirichlet(np.full(10, alpha), n)
    return np.pad((places - 0.1) * np.sqrt(10 * alpha + 1) / 0.3 / np.sqrt(10), ((0, 0), (0, WIDTH - 10)))


def simulated(federations: int) -> dict[str, dict[str, float]]:
    """Cut federations without groups, of 6, 12 and 30 clients with 1 to 16 visits each, and count small chances."""
    shares = {}
    for name, cloud in CLOUDS.items():
        chances = []
        for seed in range(federations):
            draw = np.random.default_rng([seed, 7])
            n = (6, 12, 30)[seed % 3]
            visits = draw.integers(1, 17, (2, n)).astype(float)
            means = cloud(draw, n) + draw.standard_normal((2, n, WIDTH)) / np.sqrt(visits)[..., None]
            cut = best_cut(Known(means, visits), 3, draw)
            chances.append(1.0 if cut is None or cut.holds < HOLDS else cut.chance)
        shares[name] = {f"at most {level:g}": float(np.mean(np.array(chances) <= level)) for level in (0.05, 0.01, 0.00125)}
        print(name, shares[name], flush=True)
    return shares


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.groups", description=__doc__)
    arguments.add_argument("names", nargs="+", choices=[*CASES, "simulated"])
    arguments.add_argument("--first", type=int, default=1000, help="the first seed")
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--jobs", type=int, default=1, help="federations trained at a time, each on one core")
    options = arguments.parse_args()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    (ROOT / "results/groups").mkdir(parents=True, exist_ok=True)
    if "simulated" in options.names:
        kept = {"commit": commit, "federations of each kind": FEDERATIONS, "shares": simulated(FEDERATIONS)}
        write_atomically(ROOT / "results/groups/simulated.json", json.dumps(kept, indent=1).encode())
    rows([name for name in options.names if name != "simulated"], options.first, options.seeds, options.jobs, commit)


if __name__ == "__main__":
    main()
