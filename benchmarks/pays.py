"""When does clustering pay? Local training, FedAvg, FedAvg with local steps, and groups, side by side.

python -m benchmarks.pays digits made --seeds 5        # on two cores
python -m benchmarks.pays cifar100 --seeds 2           # on a GPU, with the data where `fedgwc data ls` looks for them
python -m benchmarks.pays --page                       # writes the tables of docs/when-clustering-pays.md

On digits and made data every method gets six trials: learning rates, and numbers of groups where those are given. Validation
samples of a tuning seed, from which no result is, choose among them. On CIFAR-100 the learning rate is FedGWC's and the number of
groups the true one. How long clients go on alone after training is chosen on each run's own validation samples.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from fedgwc.core.types import Clustering
from fedgwc.data import Federation
from fedgwc.engines.settings import cores
from fedgwc.engines.simulator import Simulator
from fedgwc.metrics.classification import accuracy, balanced_accuracy
from fedgwc.runs.experiment import Experiment, load
from fedgwc.runs.loop import run
from fedgwc.runs.tables import Table, markdown
from fedgwc.runs.together import run_together

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results/pays", ROOT / "docs/when-clustering-pays.md"
TUNING = 10_000  # the first tuning seed
LOCAL_STEPS = 0, 1, 2, 4, 8, 16, 32  # times a client goes through its own data after training
RATES = 0.02, 0.05, 0.1, 0.2, 0.3, 0.5  # learning rates
TWO_RATES = 0.1, 0.3  # of methods that also choose among three numbers of groups
Tables = dict[str, Any]

SMALL: Tables = {"model": {"name": "mlp", "hidden": [64]}, "local": {"epochs": 1, "batch": 10}, "rounds": 300}
DATA: dict[str, Tables] = {
    "digits": {**SMALL, "data": {"name": "digits", "train_size": 40, "test_size": 12}},
    "made": {**SMALL, "data": {"name": "made", "train_size": 40, "test_size": 20}},
    "cifar100": {
        "model": {"name": "cnn"},
        "local": {"steps": 7, "batch": 64, "weight_decay": 4e-4},
        "rounds": 5000,
        "data": {"name": "cifar100", "train_size": 500, "test_size": 100, "augment": True},
        "evaluate": {"every": 500},
    },
}
KINDS: dict[str, list[Tables]] = {
    "homogeneous": [{"clients": 30}],
    "class skew": [{"clients": 30, "partition": "dirichlet", "alpha": 0.3}],
    "domains": [{"clients": 10}, {"clients": 10, "rotate": 90}, {"clients": 10, "rotate": 180}],
    "label codes": [{"clients": 10}, {"clients": 10, "relabel": 1}, {"clients": 10, "relabel": 2}],
}
OF_CIFAR: dict[str, list[Tables]] = {
    "homogeneous": [{"clients": 100}],
    "class skew": [{"clients": 100, "partition": "dirichlet", "alpha": 0.5}],
    "domains": [{"clients": 40}, {"clients": 30, "noise": 1.0}, {"clients": 30, "blur": 2.0}],
    "label codes": [{"clients": 70}, {"clients": 30, "relabel": 1}],
}
THREE = tuple({"k": k} for k in (2, 3, 4))
METHODS: dict[str, list[tuple[Tables, float]]] = {  # trials: settings and learning rate
    **{name: [({}, lr) for lr in RATES] for name in ("alone", "fedavg", "given", "cfl", "fedgwc", "auto")},
    **{name: list(itertools.product(THREE, TWO_RATES)) for name in ("ifca", "fesem")},
}
BY_ITSELF: Tables = {}  # no settings of its own
OF_CIFAR_METHODS: dict[str, list[tuple[Tables, float]]] = {
    name: [(BY_ITSELF, 0.01)] for name in ("alone", "fedavg", "given", "auto")
} | {"ifca": [({"k": 3}, 0.01)]}
TOGETHER = 8  # runs on a GPU
Cell = tuple[str, str, str, Tables, float, int]
CELL = ("data", "kind", "method", "settings", "lr", "seed")


def experiment(data: str, kind: str, method: str, settings: Tables, lr: float, seed: int) -> Experiment:
    base, big = DATA[data], data == "cifar100"
    algorithm = {"name": method, "rate": 0.1 if big else 0.3, **settings}
    tables = {
        **base,
        "recipe": f"{data}-{kind}".replace(" ", "-"),
        "seed": seed,
        "data": {**base["data"], "groups": (OF_CIFAR if big else KINDS)[kind]},
        "local": {**base["local"], "lr": lr},
        "algorithm": algorithm,
    }
    job = load(tables)
    if method != "given":
        return job
    labels = np.unique(job.federation().known_groups, return_inverse=True)[1].tolist()  # of those who train
    return load({**tables, "algorithm": {**algorithm, "labels": labels}})


# Local steps after training


def with_local_steps(job: Experiment, clustering: Clustering) -> Iterator[dict[str, float]]:
    """Yield scores of every client's model after more and more steps of its own."""
    federation = job.federation()
    engine = job.simulator(federation)
    clients = np.arange(federation.n_clients)
    models, done = clustering.models[clustering.labels], 0
    for times in LOCAL_STEPS:
        for more in range(done, times):
            trained = engine.train(clients, models, clients, seed=2**20 + more)
            models = models.index_copy(0, torch.from_numpy(trained.clients).to(models.device), trained.models)
        done = times
        yield {"times": times, "client_updates": times * len(clients), **scores(engine, federation, models)}


def scores(engine: Simulator, federation: Federation, models: Tensor) -> dict[str, float]:
    clients = np.arange(federation.n_clients)
    test, validation = engine.evaluate(clients, models, clients), engine.evaluate(clients, models, clients, "validation")
    return {
        "accuracy": round(float(np.nanmean(accuracy(test))), 6),
        "balanced_accuracy": round(float(np.nanmean(balanced_accuracy(test))), 6),
        "accuracy_p10": round(float(np.nanpercentile(accuracy(test), 10)), 6),
        "validation_accuracy": round(float(np.nanmean(accuracy(validation))), 6),
        "validation_loss": round(float(np.nanmean(validation.loss)), 6),
    }


# Runs


def measured(jobs: Sequence[Experiment], together: bool) -> Iterator[dict[str, Any]]:
    """Yield each run's scores as it is served and after local steps."""
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / str(i) for i in range(len(jobs))]
        done = run_together(list(zip(jobs, folders, strict=True))) if together else map(run, jobs, folders)
        for job, result in zip(jobs, done, strict=True):
            effort = {key: result.last[key] for key in ("client_updates", "bytes_up", "evaluations", "seconds")}
            groups: dict[str, Any] = {key: result.last[key] for key in ("clusters", "ari") if key in result.last}
            yield {**groups, **effort, "served": list(with_local_steps(job, result.clustering))}


class Kept:
    """Rows of a results file: what is there is not measured again, and each new row is written at once."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []

    def of(self, cells: Sequence[Cell]) -> list[dict[str, Any]]:
        """Return the rows of cells; measure those that are missing."""
        there = [cell_of(row) for row in self.rows]
        missing, began = [cell for cell in cells if cell not in there], time.monotonic()
        for i, (cell, row) in enumerate(_rows(missing), 1):
            self.rows.append({**dict(zip(CELL, cell, strict=True)), **row})
            self._write()
            left = (time.monotonic() - began) / i * (len(missing) - i)
            text = f"{i}/{len(missing)} {' '.join(map(str, cell))}: {row['served'][0]['accuracy']:.3f}; {left:.0f} s left"
            print(text, file=sys.stderr, flush=True)
        return [row for row in self.rows if cell_of(row) in cells]

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rows = sorted(self.rows, key=lambda row: [str(row[key]) for key in CELL])
        lines = ",\n".join(json.dumps(row) for row in rows)
        text = f'{{"about": {json.dumps(self.about)},\n"rows": [\n{lines}\n]}}\n'
        self.path.write_text(text, encoding="utf-8")


def cell_of(row: Mapping[str, Any]) -> Cell:
    data, kind, method, settings, lr, seed = (row[key] for key in CELL)
    return data, kind, method, settings, lr, seed


def _rows(cells: Sequence[Cell]) -> Iterator[tuple[Cell, dict[str, Any]]]:
    if torch.cuda.is_available() and cells and cells[0][0] == "cifar100":
        for _, alike in itertools.groupby(sorted(cells, key=lambda cell: cell[1]), key=lambda cell: cell[1]):
            same = list(alike)
            for some in (same[at : at + TOGETHER] for at in range(0, len(same), TOGETHER)):
                yield from zip(some, measured([experiment(*cell) for cell in some], together=True), strict=True)
        return
    with multiprocessing.get_context("spawn").Pool(cores()) as pool:
        yield from pool.imap_unordered(_with_cell, cells)


def _with_cell(cell: Cell) -> tuple[Cell, dict[str, Any]]:
    torch.set_num_threads(1)
    return cell, next(measured([experiment(*cell)], together=False))


def run_data(data: str, n_seeds: int, kept: Kept) -> None:
    """Tune on one seed, then measure each method's choice on others."""
    methods = OF_CIFAR_METHODS if data == "cifar100" else METHODS
    plans = [(kind, method) for kind in KINDS for method in methods]
    trials = [(data, kind, m, *trial, TUNING) for kind, m in plans if len(methods[m]) > 1 for trial in methods[m]]
    tried = kept.of(trials)
    chosen = {(kind, m): best_trial([t for t in tried if (t["kind"], t["method"]) == (kind, m)], methods[m]) for kind, m in plans}
    kept.of([(data, kind, m, *chosen[kind, m], seed) for seed in range(n_seeds) for kind, m in plans])


def best_trial(tried: Sequence[dict[str, Any]], trials: Sequence[tuple[Tables, float]]) -> tuple[Tables, float]:
    """Choose the settings that serve validation samples best."""
    if not tried:
        return trials[0]
    best = max(tried, key=lambda t: validated(t["served"][0]))
    return best["settings"], best["lr"]


def validated(row: Mapping[str, float]) -> tuple[float, float]:
    return row["validation_accuracy"], -row["validation_loss"]


# The page


def table(runs: Sequence[dict[str, Any]], longer: bool) -> Table:
    """Tabulate accuracies of training alone, and the other methods' differences to it over seeds.

    As clients are served, or after the number of `longer` local steps that each run's validation samples choose.
    """
    names = list(dict.fromkeys(name for name in METHODS if any(run["method"] == name for run in runs)))
    rows = [[f"`{name}`", *(_cell(runs, kind, name, longer) for kind in KINDS)] for name in names]
    return Table(["", *KINDS], rows)


def _cell(runs: Sequence[dict[str, Any]], kind: str, method: str, longer: bool) -> str:
    of_kind = [r for r in runs if r["kind"] == kind]
    alone = {r["seed"]: 100 * r["served"][0]["accuracy"] for r in of_kind if r["method"] == "alone"}
    mine = {r["seed"]: 100 * served(r, longer)["accuracy"] for r in of_kind if r["method"] == method}
    if not mine:
        return ""
    if method == "alone":
        return f"{statistics.mean(alone.values()):.1f} %"
    return interval([mine[seed] - alone[seed] for seed in mine])


def served(run: Mapping[str, Any], longer: bool) -> Mapping[str, float]:
    rows: list[dict[str, float]] = run["served"]
    return max(rows, key=validated) if longer and run["method"] != "alone" else rows[0]


def interval(gains: Sequence[float]) -> str:
    """Write a mean with its 95 % t interval over seeds."""
    mean = statistics.mean(gains)
    if len(gains) < 2 or not any(gains):
        return f"{mean:+.1f}"
    half = stats.t.ppf(0.975, len(gains) - 1) * statistics.stdev(gains) / len(gains) ** 0.5
    return f"{mean:+.1f} ± {half:.1f}"


def with_tables(text: str) -> str:
    """Return the page with the tables of all result files."""
    for path in sorted(RESULTS.glob("*.json")):
        runs = [row for row in json.loads(path.read_text(encoding="utf-8"))["rows"] if row["seed"] < TUNING]
        for longer, name in ((False, "served"), (True, "longer")):
            start, end = f"<!-- table {path.stem}_{name} -->\n", "<!-- end -->"
            before, found, rest = text.partition(start)
            if found:
                text = f"{before}{start}{markdown(table(runs, longer))}{end}{rest.partition(end)[2]}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", choices=[[], *DATA])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--commit", default="", help="where the code is no checkout")
    parser.add_argument("--page", action="store_true")
    args = parser.parse_args()
    for data in args.data:
        about = {"command": f"python -m benchmarks.pays {data} --seeds {args.seeds}", "commit": args.commit or commit()}
        about |= {"date": date.today().isoformat(), "machine": machine(), "selection": "validation samples of seed 10000"}
        run_data(data, args.seeds, Kept(args.out / f"{data}.json", about))
    if args.page:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def commit() -> str:
    return subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def machine() -> str:
    what = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return f"{cores()} cores, {what}, torch {torch.__version__}"


if __name__ == "__main__":
    main()
