"""How honest clients fare among malicious ones, and where FedGWC puts those."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from benchmarks.torture.attackers import Attack, Malicious, poisoned
from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.types import Clustering, Ids
from fedgwc.data.federation import Federation
from fedgwc.engines.simulator import Simulator
from fedgwc.metrics.classification import accuracy
from fedgwc.runs.experiment import experiment
from fedgwc.runs.loop import rounds
from fedgwc.runs.tables import Table

Result = dict[str, Any]
TABLES: dict[str, Any] = {
    "rounds": 600,
    "data": {
        "name": "digits",
        "validation": 0.0,
        "newcomers": 0.0,
        "train_size": 12,
        "test_size": 5,
        "groups": [{"clients": 100}],
    },
    "model": {"name": "mlp", "hidden": [32]},
    "local": {"steps": 4, "batch": 16, "lr": 0.1},
}
RATE = 0.2
ATTACKS: dict[str, tuple[float, Attack]] = {  # the share of malicious clients, and what they do
    "nobody lies": (0.2, Attack()),
    "labels flipped": (0.2, Attack(flip_labels=True)),
    "sign flipped": (0.2, Attack(scale=-1.0)),
    "scaled x 10": (0.2, Attack(scale=10.0)),
    "losses zero": (0.2, Attack(losses="zero")),
    "losses x 10": (0.2, Attack(losses="tenfold")),
    "labels flipped, counts x 100": (0.2, Attack(flip_labels=True, samples=100)),
    "30 % collude": (0.3, Attack(scale=-3.0, losses="typical", together=True)),
}
COMBINE = ("mean", "median", "trimmed-mean", "clipped-mean")


def suffer(
    name: str, attack: str, seed: int, combine: str = "mean", n_rounds: int | None = None
) -> tuple[float, int, float, float]:
    """One run: honest clients' accuracy, clusters, share of attackers caught, share of honest clients dragged along."""
    settings = {"name": name, "rate": RATE, "server": {"combine": combine, **({"trim": 0.35} if "trim" in combine else {})}}
    job = experiment({**TABLES, "seed": seed, "rounds": n_rounds or TABLES["rounds"], "algorithm": settings})
    share, how = ATTACKS[attack]
    federation = _federation(seed)
    n = federation.n_clients
    attackers = np.sort(np.random.default_rng([seed, 7]).choice(n, round(share * n), replace=False))
    engine = job.simulator(poisoned(federation, attackers, how))
    start = job.initial(federation, engine)
    all_rounds = rounds(job.algorithm, Malicious(engine, attackers, how), start, n, job.rounds, seed=seed)
    _, state = deque(all_rounds, maxlen=1).pop()
    clustering = job.algorithm.clustering(state)
    return _honest_accuracy(engine, clustering, attackers), len(clustering.models), *_isolation(clustering.labels, attackers)


@cache
def _federation(seed: int) -> Federation:
    return experiment({**TABLES, "seed": seed}).federation()


def _honest_accuracy(engine: Simulator, clustering: Clustering, attackers: Ids) -> float:
    honest = np.setdiff1d(np.arange(len(clustering.labels)), attackers)
    return float(accuracy(engine.evaluate(honest, clustering.models, clustering.labels[honest])).mean())


def _isolation(labels: Ids, attackers: Ids) -> tuple[float, float]:
    bad = np.isin(np.arange(len(labels)), attackers)
    theirs = np.bincount(labels, bad) > np.bincount(labels, ~bad)  # per cluster: the malicious are the majority
    return float(theirs[labels[bad]].mean()), float(theirs[labels[~bad]].mean())


def measure(seeds: int, seconds: float, save: Callable[[Result], None] = lambda _: None, found: Result | None = None) -> Result:
    """One line per run; seed by seed, so that what is there when time is up is even.

    `save` sees what there is so far, and `found` is such a result to go on with.
    """
    plan = [(name, "mean") for name in ALGORITHMS if name != "alone"] + [
        (name, c) for name in ("fedavg", "auto") for c in COMBINE[1:]
    ]
    found = found or {"rounds": TABLES["rounds"], "rate": RATE, "runs": []}
    there = {(run["seed"], run["algorithm"], run["combine"], run["attack"]) for run in found["runs"]}
    stop = time.monotonic() + seconds
    for seed, (name, combine), attack in itertools.product(range(seeds), plan, ATTACKS):
        if time.monotonic() > stop:
            break
        if (seed, name, combine, attack) in there:
            continue
        outcome = dict(zip(("honest", "clusters", "caught", "dragged"), suffer(name, attack, seed, combine), strict=True))
        found["runs"].append({"algorithm": name, "combine": combine, "attack": attack, "seed": seed, **outcome})
        save(found)
    return found


def tables(found: Result) -> dict[str, Table]:
    attacks = list(dict.fromkeys(run["attack"] for run in found["runs"]))

    def cell(key: str, scale: float = 100, **which: str) -> str:
        values = [scale * run[key] for run in found["runs"] if all(run[k] == v for k, v in which.items())]
        spread = f" ± {statistics.stdev(values):.1f}" if len(set(values)) > 1 else ""
        return f"{statistics.mean(values):.1f}{spread}" if values else "–"

    def honest(name: str, combine: str) -> list[str]:
        return [cell("honest", algorithm=name, combine=combine, attack=a) for a in attacks]

    tried = {run["algorithm"] for run in found["runs"]}
    robust = [(name, combine) for name in ("fedavg", "auto") for combine in COMBINE]
    where = [[a, *(cell(k, s, algorithm="auto", combine="mean", attack=a) for k, s in COLUMNS)] for a in attacks]
    return {
        "honest": Table(["algorithm", *attacks], [[name, *honest(name, "mean")] for name in ALGORITHMS if name in tried]),
        "robust": Table(["algorithm", *attacks], [[f"{n}, {c}", *honest(n, c)] for n, c in robust]),
        "isolation": Table(["attack", "clusters", "malicious clients caught %", "honest clients dragged along %"], where),
    }


COLUMNS = (("clusters", 1.0), ("caught", 100.0), ("dragged", 100.0))
