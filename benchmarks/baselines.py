"""What restarts do for IFCA and shares of lengths for CFL, on federations of digits whose groups are known.

    python -m benchmarks.baselines            # measures: 20 minutes on one core; writes results/baselines.json and the pages
    python -m benchmarks.baselines --pages    # writes the pages' tables again, from that file

Settings were chosen on seeds 0 to 4 (`DESIGN`), tables report seeds 100 to 104.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import fedgwc
from fedgwc.io.atomic import write_atomically
from fedgwc.reproduce.provenance import provenance
from fedgwc.runs.tables import Table, markdown

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results/baselines.json"
PAGES = {"ifca": ROOT / "docs/algorithms/ifca.md", "cfl": ROOT / "docs/algorithms/cfl.md"}
SEEDS = range(100, 105)
DESIGN = range(5)


@dataclass(frozen=True)
class Federation:
    """Clients of digits: so many of each group, who code labels or see images another way."""

    sizes: tuple[int, ...]
    images: int  # of each client, to train on and to validate
    tests: int
    rate: float
    rounds: int
    shift: str = "relabel"
    by: tuple[int, ...] = (0, 3, 6)
    lr: float = 0.1
    local: tuple[tuple[str, float], ...] = (("steps", 10), ("batch", 32))
    alpha: float | None = None  # of the Dirichlet distribution of classes; None: everybody has all of them

    def recipe(self, algorithm: str, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
        mix = {} if self.alpha is None else {"partition": "dirichlet", "alpha": self.alpha}
        groups = [{"clients": n, self.shift: by, **mix} for n, by in zip(self.sizes, self.by, strict=False)]
        return {
            "seed": seed,
            "rounds": self.rounds,
            "data": {"name": "digits", "train_size": self.images, "test_size": self.tests, "groups": groups},
            "model": {"name": "mlp", "hidden": [32]},
            "local": {**dict(self.local), "lr": self.lr},
            "algorithm": {"name": algorithm, "rate": self.rate, **settings},
            "evaluate": {"every": self.rounds, "checkpoint_seconds": 600},
        }


SMALL = (("steps", 4), ("batch", 4))
FEDERATIONS = {
    "6 silos, 3 + 3": Federation((3, 3), 150, 60, 1.0, 80, by=(0, 5)),
    "12 silos, 4 + 4 + 4": Federation((4, 4, 4), 90, 40, 1.0, 80),
    "12 silos, 4 + 4 + 4, rate 0.5": Federation((4, 4, 4), 90, 40, 0.5, 80),
    "12 silos, 4 + 4 + 4, learning rate 0.02": Federation((4, 4, 4), 90, 40, 1.0, 250, lr=0.02),
    "12 silos, 4 + 4 + 4, learning rate 0.3": Federation((4, 4, 4), 90, 40, 1.0, 80, lr=0.3),
    "18 silos, 6 + 6 + 6": Federation((6, 6, 6), 60, 25, 1.0, 80),
    "18 silos, 6 + 6 + 6, rate 0.5": Federation((6, 6, 6), 60, 25, 0.5, 80),
    "18 silos, 14 + 4": Federation((14, 4), 60, 25, 1.0, 80, by=(0, 1)),
    "20 clients, four codes, rate 0.3": Federation((5, 5, 5, 5), 50, 20, 0.3, 120, by=(0, 1, 2, 3)),
    "24 clients, four rotations, rate 0.5": Federation((6, 6, 6, 6), 52, 20, 0.5, 100, "rotate", (0, 90, 180, 270)),
    "the recipe: 85 + 15, rate 0.1": Federation((85, 15), 12, 5, 0.1, 1500, by=(0, 1), local=SMALL),
    "6 silos, alike": Federation((6,), 150, 60, 1.0, 200),
    "18 silos, alike": Federation((18,), 60, 25, 1.0, 200),
    "18 silos, alike, rate 0.5": Federation((18,), 60, 25, 0.5, 200),
    "12 silos, alike, learning rate 0.3": Federation((12,), 90, 40, 1.0, 200, lr=0.3),
    "20 clients, one code, alpha 0.5, rate 0.5": Federation((20,), 50, 20, 0.5, 200, alpha=0.5),
    "20 clients, one code, alpha 0.1, rate 0.5": Federation((20,), 50, 20, 0.5, 200, alpha=0.1),
    "100 clients, alike, rate 0.1": Federation((100,), 12, 5, 0.1, 1500, local=SMALL),
}
ALIKE = tuple(name for name, f in FEDERATIONS.items() if len(f.sizes) == 1)
IFCA_ON = {name: f for name, f in FEDERATIONS.items() if name not in ALIKE}
CFL_WAYS: dict[str, dict[str, Any]] = {
    "`cfl`, as it is": {},
    "lengths 0.4 and 1.6, public code's": {"lengths": "absolute", "eps1": 0.4, "eps2": 1.6},
    "lengths 0.15 and 0.5": {"lengths": "absolute", "eps1": 0.15, "eps2": 0.5},
}
IFCA_WAYS: dict[str, dict[str, Any]] = {"one start": {"starts": 1}, "`ifca`, the best of five": {}}


@dataclass(frozen=True)
class Outcome:
    method: str
    way: str
    federation: str
    seed: int
    accuracy: float
    clusters: int
    rand: float | None  # adjusted; None: there is one group
    exact: bool
    client_updates: int
    evaluations: int


def run(method: str, way: str, settings: dict[str, Any], name: str, seed: int) -> Outcome:
    settings = {**settings, **({"k": len(FEDERATIONS[name].sizes)} if method == "ifca" else {})}
    with tempfile.TemporaryDirectory() as folder:
        last = fedgwc.run(FEDERATIONS[name].recipe(method, seed, settings), Path(folder) / "run").last
    one_group = name in ALIKE
    rand, clusters = None if one_group else round(last["ari"], 4), int(last["clusters"])
    exact = clusters == 1 if one_group else rand == 1
    spent = int(last["client_updates"]), int(last["evaluations"])
    return Outcome(method, way, name, seed, round(last["accuracy"], 4), clusters, rand, exact, *spent)


def measure() -> dict[str, Any]:
    jobs: list[tuple[str, str, dict[str, Any], str]] = [("fedavg", "`fedavg`", {}, name) for name in FEDERATIONS]
    jobs += [("ifca", way, settings, name) for way, settings in IFCA_WAYS.items() for name in IFCA_ON]
    jobs += [("cfl", way, settings, name) for way, settings in CFL_WAYS.items() for name in FEDERATIONS]
    rows = []
    for job in jobs:
        rows += [asdict(run(*job, seed)) for seed in SEEDS]
        print(job[:2], job[3], [row["clusters"] for row in rows[-len(SEEDS) :]], file=sys.stderr, flush=True)
    about = {"federations": {name: asdict(f) for name, f in FEDERATIONS.items()}, "cfl": CFL_WAYS, "ifca": IFCA_WAYS}
    return {**provenance("python -m benchmarks.baselines"), "seeds": list(SEEDS), "settings": about, "rows": rows}


def tables(found: dict[str, Any]) -> dict[str, Table]:
    rows = [Outcome(**row) for row in found["rows"]]
    return {method: _table(rows, method, names) for method, names in (("ifca", IFCA_ON), ("cfl", FEDERATIONS))}


def _table(rows: Sequence[Outcome], method: str, names: Sequence[str] | dict[str, Federation]) -> Table:
    ways = [("fedavg", "`fedavg`"), *dict.fromkeys((r.method, r.way) for r in rows if r.method == method)]
    lines = [
        [name, *(_cell([r for r in rows if (r.method, r.way, r.federation) == (*way, name)]) for way in ways)] for name in names
    ]
    return Table(["digits", *(way for _, way in ways)], lines)


def _cell(some: Sequence[Outcome]) -> str:
    """Write mean accuracy and its deviation over seeds, and in how many of them the groups are exact."""
    scores = [100 * r.accuracy for r in some]
    found = "" if some[0].method == "fedavg" else f", {sum(r.exact for r in some)} of {len(some)}"
    return f"{statistics.fmean(scores):.1f} ± {statistics.stdev(scores):.1f}{found}"


def with_table(text: str, name: str, table: Table) -> str:
    """Replace what stands between the page's two marks."""
    place = re.compile(rf"(<!-- from results/{RESULTS.name}: {name} -->\n).*?(<!-- end -->)", re.S)
    return place.sub(lambda m: f"{m[1]}{markdown(table)}{m[2]}", text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.baselines", description=__doc__)
    parser.add_argument("--pages", action="store_true", help="measure nothing")
    if not parser.parse_args().pages:
        torch.set_num_threads(1)
        write_atomically(RESULTS, (json.dumps(measure(), indent=1) + "\n").encode())
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    made = tables(found)
    found["tables"] = {name: {"head": t.head, "rows": t.rows} for name, t in made.items()}  # so that each number is in the file
    write_atomically(RESULTS, (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode())
    for method, table in made.items():
        page = PAGES[method]
        page.write_text(with_table(page.read_text(encoding="utf-8"), method, table), encoding="utf-8")


if __name__ == "__main__":
    main()
