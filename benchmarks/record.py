"""The recordings that the evidence is made of: FedAvg's losses on CIFAR-100, federation by federation, small enough to keep.

    python -m benchmarks.record TRACES --first 20     # seeds 20, 21, ...; then: python -m benchmarks.evidence TRACES

Needs CIFAR-100, the authors' partition file for `alpha 0.5` beside it, and in practice a GPU: all of it is some 340,000 rounds.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.core.errors import InputError
from fedgwc.data.sources.roots import data_root
from fedgwc.runs.batch import run_all
from fedgwc.runs.experiment import Experiment, load
from fedgwc.runs.folder import RunFolder


@dataclass(frozen=True)
class Federation:
    recipe: str
    rounds: int = 4_000
    seeds: int = 4
    sets: tuple[str, ...] = ()

    def job(self, seed: int) -> Experiment:
        rare = "evaluate.every=1000"  # only losses matter, but accuracy is worth a look
        return load(self.recipe, ["algorithm.name=fedavg", f"rounds={self.rounds}", f"seed={seed}", rare, *self.sets])


def weaker(clean: int, noisy: int, blurred: int) -> tuple[str, ...]:
    """The domain mixes with half the noise and half the blur."""
    kinds = [(clean, ""), (noisy, ",noise=0.5"), (blurred, ",blur=1.0")]
    groups = [f'{{clients={n},partition="dirichlet",alpha=100.0{shift}}}' for n, shift in kinds if n]
    return (f"data.groups=[{','.join(groups)}]",)


FEDERATIONS = {
    "40 clean, 30 noisy, 30 blurred": Federation("cifar100-dom-40-30-30", 8_000, seeds=8),
    "50 clean, 50 blurred": Federation("cifar100-dom-50-0-50", 8_000),
    "50 clean, 50 noisy": Federation("cifar100-dom-50-50-0", 8_000),
    "homogeneous": Federation(
        "cifar100", 5_000, seeds=10, sets=('data.groups=[{clients=100,partition="dirichlet",alpha=1000.0}]',)
    ),
    "10 + 90 of one class": Federation("cifar100-het-10-0-90"),
    "10 + 90 at alpha 0.5": Federation("cifar100-het-10-90-0"),
    "40 + 30 + 30 by alpha": Federation("cifar100-het-40-30-30"),
    "alpha 0.5": Federation("cifar100", sets=(f"data.partition_file={data_root() / 'dataset_alpha_0.50.json.gz'}",)),
    "40 + 30 + 30, weaker": Federation("cifar100-dom-40-30-30", 8_000, sets=weaker(40, 30, 30)),
    "50 clean, 50 noisy, weaker": Federation("cifar100-dom-50-50-0", 8_000, sets=weaker(50, 50, 0)),
    "50 clean, 50 blurred, weaker": Federation("cifar100-dom-50-0-50", 8_000, sets=weaker(50, 0, 50)),
}


def record(name: str, place: Path, first: int) -> None:
    """Into `place`/`name`/seedN.npz; on a GPU all seeds train in step."""
    federation = FEDERATIONS[name]
    seeds = [s for s in range(first, first + federation.seeds) if not (place / name / f"seed{s}.npz").exists()]
    with TemporaryDirectory() as runs:
        for done in run_all([(f"seed{s}", federation.job(s)) for s in seeds], Path(runs), federation.seeds):
            if done.problem:
                raise InputError(done.problem)
            small(Path(runs) / done.name, place / name / f"{done.name}.npz")
            print(f"{name}, {done.name}: accuracy {done.last['accuracy']:.1%}, {done.last['seconds']:.0f} s", flush=True)


def small(run: Path, into: Path) -> None:
    """A run's losses and what is known of its clients. Half precision: a loss moves by far more from batch to batch."""
    trace = RunFolder(run).trace_with_clients()
    trace["L"], trace["ids"] = trace["L"].astype(np.float16), trace["ids"].astype(np.int16)
    kept: dict[str, NDArray[Any]] = {name: trace[name] for name in ("ids", "L", "truth", "counts", "sizes") if name in trace}
    into.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(into, allow_pickle=False, **kept)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, help="folder for the recordings")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", nargs="*", default=list(FEDERATIONS), choices=list(FEDERATIONS), help="some federations alone")
    chosen = parser.parse_args()
    for federation in chosen.only:
        record(federation, chosen.traces, chosen.first)
