"""The shipped recipes: they say what the paper says, fit every algorithm, and run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.errors import InputError
from fedgwc.core.sampling import cohort_size
from fedgwc.core.settings import convert, plain
from fedgwc.data import Group, Pool, federate
from fedgwc.runs.experiment import experiment, load, recipes
from fedgwc.runs.loop import run
from fedgwc.runs.scale import scaled_experiment

PAPER = sorted(set(recipes()) - {"digits", "made", "silos"})
DOMAINS = ("50-50-0", "50-0-50", "40-30-30")

# Appendix E: rounds, local steps, learning rate, weight decay, eps, model, clients, clients a round
PUBLISHED: dict[str, tuple[int, int, float, float | None, float, str, int, int]] = {
    "cifar10": (10_000, 7, 0.01, 4e-4, 1e-5, "cnn", 100, 10),
    "cifar100": (20_000, 7, 0.01, 4e-4, 1e-5, "cnn", 100, 10),
    "femnist": (3_000, 8, 0.01, 4e-4, 1e-5, "lenet5", 400, 40),
    "landmarks": (1_000, 7, 0.1, None, 1e-4, "mobilenet_v2", 823, 10),
    "inaturalist": (2_000, 5, 0.1, None, 1e-2, "mobilenet_v2", 2714, 10),
}

# Dirichlet alphas: how many clients have which
ALPHAS: dict[str, dict[float, int]] = {
    "cifar10": {0.05: 100},
    "cifar100": {0.5: 100},
    "cifar100-mechanism": {0.05: 100},
    "femnist": {0.01: 400},
    "cifar100-het-10-0-90": {1000: 10, 0: 90},
    "cifar100-het-10-90-0": {1000: 10, 0.5: 90},
    "cifar100-het-40-30-30": {1000: 40, 0.05: 30, 0: 30},
    "cifar10-het-10-0-90": {100: 10, 0: 90},
    "cifar10-het-10-90-0": {100: 10, 0.5: 90},
    "cifar10-het-40-30-30": {100: 40, 0.5: 30, 0: 30},
    **{f"{data}-dom-{mix}": {100: 100} for data in ("cifar10", "cifar100") for mix in DOMAINS},
}


def groups_of(name: str) -> tuple[Group, ...]:
    groups: tuple[Group, ...] = convert(load(name).tables["data"]["groups"], tuple[Group, ...], "groups")
    return groups


@pytest.mark.parametrize("name", PAPER)
def test_published_hyper_parameters(name: str) -> None:
    base = name.split("-")[0]
    rounds, steps, lr, decay, eps, model, clients, cohort = PUBLISHED[base]
    job = load(name, ["algorithm.name=fedgwc"])
    said = plain(job.algorithm)
    assert job.rounds == rounds
    assert (job.local.steps, job.local.batch, job.local.lr) == (8 if name == "cifar100-mechanism" else steps, 64, lr)
    assert decay is None or job.local.weight_decay == decay
    assert (said["eps"], said["alpha"], said["beta"]) == (eps, 0.1, 0.5)
    assert job.tables["model"]["name"] == model
    assert cohort_size(clients, said["rate"]) == cohort


@pytest.mark.parametrize("name", ALPHAS)
def test_published_partitions(name: str) -> None:
    found: dict[float, int] = {}
    for group in groups_of(name):
        assert group.partition == "dirichlet"
        alpha = group.dealt["alpha"]
        found[alpha] = found.get(alpha, 0) + group.clients
    assert found == ALPHAS[name]


@pytest.mark.parametrize("mix", DOMAINS)
@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
def test_published_domains(data: str, mix: str) -> None:
    groups = groups_of(f"{data}-dom-{mix}")
    noisy, blurred = (sum(g.clients for g in groups if kind in g.shifts) for kind in ("noise", "blur"))
    assert f"{100 - noisy - blurred}-{noisy}-{blurred}" == mix


@pytest.mark.parametrize("name", [n for n in ALPHAS if len(ALPHAS[n]) > 1 or "-dom-" in n])
def test_the_data_suffice(name: str) -> None:
    """One class where one is meant, and alike where that is meant, down to the last client."""
    n_classes = 10 if name.startswith("cifar10-") else 100
    job, groups = load(name), groups_of(name)
    y = np.concatenate([np.arange(50_000) % n_classes, np.arange(10_000) % n_classes])
    pool = Pool(torch.zeros(60_000, 1, 1, 1), torch.from_numpy(y), np.arange(50_000), np.arange(50_000, 60_000), n_classes)
    plain = tuple(Group(g.clients, g.partition, **g.dealt) for g in groups)
    got = federate(pool, plain, job.tables["data"]["train_size"], job.tables["data"]["test_size"], seed=0)
    assert got.notes == ()
    owner = np.repeat([g.dealt["alpha"] for g in groups], [g.clients for g in groups])
    for split in ("train", "test"):
        assert ((got.class_counts(split)[owner == 0] > 0).sum(1) == 1).all()
    shares = got.class_counts("train")[owner >= 100] / job.tables["data"]["train_size"]
    apart = np.abs(shares - 1 / n_classes).sum(1) / 2  # distance from the uniform mix, in 0..1
    assert apart.max() < 2 * np.median(apart)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", sorted(recipes()))
def test_every_recipe_fits_every_algorithm(name: str, algorithm: str) -> None:
    assert load(name, [f"algorithm.name={algorithm}"]).algorithm_name == algorithm


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.mark.parametrize("name", sorted(recipes()))
def test_every_recipe_runs_on_made_data(name: str, made: Path, tmp_path: Path) -> None:
    if name in ("landmarks", "inaturalist"):
        pytest.importorskip("PIL.Image", reason="photographs need the extra `images`")
    quick = ["rounds=2", "algorithm.name=fedgwc", "engine.how=one-by-one", "engine.threads=1"]
    job = scaled_experiment(name, quick, "smoke", made)
    got = run(job, tmp_path / "run")
    assert got.finished
    assert got.last["round"] == 2
    assert got.last["client_updates"] >= 6


# Settings for one algorithm only

BASE: dict[str, Any] = {"data": {"name": "digits"}, "model": {"name": "mlp"}}
OWN: dict[str, Any] = {
    **BASE,
    "algorithm": {"rate": 0.2},
    "auto": {"gain": 2.0},
    "fedgwc": {"beta": 2.0},
    "fedgwc-release": {"eps": 0.5},
    "ifca": {"k": 4},
}


def settings(name: str, *sets: str) -> dict[str, Any]:
    said: dict[str, Any] = plain(load(OWN, [f"algorithm.name={name}", *sets]).algorithm)
    return said


def test_a_table_named_like_an_algorithm_is_for_that_one() -> None:
    assert (settings("ifca")["k"], settings("fesem")["k"]) == (4, 2)
    assert settings("auto")["gain"] == 2.0
    found = {name: (settings(name)["beta"], settings(name)["eps"]) for name in ("fedgwc", "fedgwc-release")}
    assert found == {"fedgwc": (2.0, 1e-5), "fedgwc-release": (2.0, 0.5)}  # the family's, then its own
    assert {settings(name)["rate"] for name in ALGORITHMS} == {0.2}


def test_the_last_word_wins() -> None:
    assert settings("fedgwc", "algorithm.beta=1.0")["beta"] == 1.0
    assert settings("fedgwc", "algorithm.beta=1.0", "fedgwc.beta=3.0")["beta"] == 3.0
    assert settings("ifca", "ifca.rate=0.5")["rate"] == 0.5
    assert settings("ifca", "ifca.rate=0.5", "algorithm.rate=0.3")["rate"] == 0.3
    server = settings("fedavg", "fedavg.server.momentum=0.5", "algorithm.server.weights=equal")["server"]
    assert (server["momentum"], server["weights"]) == (0.5, "equal")


def test_a_slip_shows_whichever_algorithm_runs() -> None:
    with pytest.raises(InputError, match="ifca has no setting 'kk'"):
        experiment({**BASE, "algorithm": {"name": "fedavg"}, "ifca": {"kk": 3}})
    with pytest.raises(InputError, match="ifca must be a table"):
        experiment({**BASE, "ifca": 3})


def test_a_run_saves_the_outcome_of_all_tables() -> None:
    job = load(OWN, ["algorithm.name=fedgwc"])
    assert experiment(job.to_json()).algorithm == job.algorithm


def test_another_data_set_or_model_takes_over_only_what_it_knows() -> None:
    sets = ["data.path=own", "data.name=arrays", "model.name=cnn"]  # in any order
    job = load("digits", sets)
    assert job.tables["data"] == {"name": "arrays", "path": "own"}
    assert job.tables["model"] == {"name": "cnn"}
    assert load("cifar100", ["data.name=cifar10"]).tables["data"]["groups"]  # which both know
    with pytest.raises(InputError, match=r"arrays has no setting 'train_size', .*digits.* have: choose one by data.name"):
        load("digits", ["data.name=arrays", "data.path=own", "data.train_size=3"]).federation()
