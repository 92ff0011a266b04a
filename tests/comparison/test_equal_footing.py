"""All methods of a seed have the same data and the same first model, and where cohorts are alike, the same draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedgwc.algorithms import ALGORITHMS
from fedgwc.comparison.plan import plan_runs
from fedgwc.data import Federation
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import run
from fedgwc.runs.simulated import SimulatedSite

SETS = ["data.train_size=6", "local.steps=1", "rounds=2"]
UNIFORM = [*SETS, "algorithm.rate=0.1"]
WEIGHTED = "fedgwc"  # prefers clients that were sampled less often, which is a part of the method


def site(algorithm: str, seed: int) -> SimulatedSite:
    [planned] = plan_runs("digits", [algorithm], 1, [*SETS, f"seed={seed}"], "full", [])
    made = SimulatedSite(planned.job)
    made.use(planned.job.simulator(made.federation))
    return made


def arrays_of(federation: Federation) -> dict[str, np.ndarray]:
    """All arrays that say who has which samples, by name."""
    rows = {name: rows for name, rows in federation.splits.items() if rows is not None}
    new = {} if federation.newcomers is None else {f"new {k}": v for k, v in arrays_of(federation.newcomers).items()}
    parts = {f"{name} {part}": getattr(each, part) for name, each in rows.items() for part in ("flat", "offsets")}
    return {"x": np.asarray(federation.x), "y": federation.y.numpy(), **parts, **new}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_seed_is_one_federation_and_one_first_model_for_every_algorithm(algorithm: str) -> None:
    """One that starts from several models has the common one among them, and the others are not that one."""
    one, reference = site(algorithm, 1), site("fedavg", 1)
    ours, theirs = arrays_of(one.federation), arrays_of(reference.federation)
    assert {"train flat", "validation flat", "test flat", "new test flat"} <= ours.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in {**ours, **theirs})
    first, *others = one.initial().reshape(-1, reference.initial().numel())
    assert torch.equal(first, reference.initial())
    assert not any(torch.equal(first, other) for other in others)


def test_data_and_first_model_follow_the_seed() -> None:
    one, other = site("fedavg", 0), site("fedavg", 1)
    assert not np.array_equal(one.federation.train.flat, other.federation.train.flat)
    assert not torch.equal(one.initial(), other.initial())


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """The cohorts of FedAvg, [rounds, clients]."""
    return cohorts("fedavg", tmp_path_factory.mktemp("usual"))


def cohorts(algorithm: str, folder: Path) -> np.ndarray:
    [planned] = plan_runs("digits", [algorithm], 1, UNIFORM, "full", [])
    run(planned.job, folder / "r")
    return RunFolder(folder / "r").trace()["ids"]


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != WEIGHTED])
def test_cohorts_that_are_alike_are_the_same_draws(algorithm: str, usual: np.ndarray, tmp_path: Path) -> None:
    """As long as nothing has been divided."""
    assert cohorts(algorithm, tmp_path).tolist() == usual.tolist()
