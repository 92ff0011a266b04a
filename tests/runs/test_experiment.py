"""Recipes: what is wrong is said in one sentence that names the key."""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch

from fedgwc.algorithms.aggregate import Aggregator
from fedgwc.algorithms.fedgwc.splits import PaperSplit
from fedgwc.core.errors import InputError
from fedgwc.core.settings import convert, defaults
from fedgwc.core.work import LocalTraining
from fedgwc.data import DATASETS
from fedgwc.models import MODELS
from fedgwc.runs.budget import Evaluate
from fedgwc.runs.experiment import experiment, load, read_recipe, recipes

BASE: dict[str, Any] = {"data": {"name": "digits"}, "model": {"name": "mlp"}}

WRONG = [
    ({"rounds": 0}, "rounds must be at least 1"),
    ({"rounds": 1.5}, "rounds must be a whole number, got 1.5"),
    ({"rounds": True}, "rounds must be a whole number"),
    ({"seed": -1}, "seed must be in 0"),
    ({"recipe": "../../x"}, "the recipe '../../x' cannot be the name of a folder"),
    ({"rounds": 2**63}, r"rounds must be in -2\^63\.\.2\^63-1, got a number of 64 bits"),
    ({"recipe": [1]}, r"recipe must be text, got \[1\]"),
    ({"about": {"a": 1}}, "about must be text"),
    ({"recipe": "a\x1b[2J"}, r"the recipe 'a\\x1b\[2J' cannot be the name of a folder"),
    ({"recipe": ".."}, r"the recipe '\.\.' cannot be the name of a folder"),
    ({"sede": 1}, "no setting 'sede'.*did you mean seed"),
    ({"algorithm": {"name": "fedgcw"}}, "unknown algorithm 'fedgcw' .did you mean fedgwc.*; choose from "),
    ({"algorithm": {"name": "fedgwc", "bta": 1}}, "algorithm has no setting 'bta'.*did you mean beta"),
    ({"algorithm": {"nam": "ifca"}}, "algorithm has no setting 'nam'.*did you mean name"),
    ({"algorithm": {"name": "fedavg", "k": 3}}, r"fedavg has no setting 'k', ifca, fesem has; .*algorithm\.name.*ifca\.k"),
    ({"algorithm": {"name": "fedgwc", "beta": "x"}}, "algorithm.beta must be a number, got 'x'"),
    ({"algorithm": {"name": "fedgwc", "beta": -1.0}}, "beta must be positive and finite, got 1e-05 and -1.0"),
    ({"algorithm": {"name": "fedgwc", "beta": float("nan")}}, "must be a number, got nan"),
    ({"algorithm": {"name": "fedgwc", "features": "diagonal"}}, "algorithm.features must be one of 'rows', 'columns'"),
    ({"algorithm": {"name": "fedavg", "rate": 0.0}}, "rate must be in"),
    ({"algorithm": {"name": "fedavg", "server": {"momentum": 2.0}}}, "momentum must be in"),
    ({"algorithm": {"name": "fedavg", "server": {"mometum": 0.1}}}, "algorithm.server has no setting 'mometum'"),
    ({"algorithm": "fedavg"}, "algorithm must be a table.*did you mean algorithm.name=fedavg"),
    ({"local": {"steps": 1, "epochs": 2}}, "steps or epochs, not both"),
    ({"local": {"lr": 0}}, "lr must be positive"),
    ({"local": {"lr": 10**400}}, "local.lr must be .* got a number of 1329 bits"),
    ({"local": {"lr": 1e308}}, r"local.lr must be within ±3e\+38, what fits into 32 bits, got 1e\+308"),
    ({"local": {"weight_decay": 1e308}}, "local.weight_decay must be within"),
    ({"local": {"batch": 10**30}}, "local.batch must be"),
    ({"local": {"steps": 10**11}}, r"local steps must be in 1\.\.100000, got 100000000000"),
    ({"local": {"epochs": 10**11}}, r"local epochs must be in 1\.\.100000"),
    ({"algorithm": {"name": "ifca", "k": 10**6}}, "ifca k must be at most 1000, got 1000000"),
    ({"algorithm": {"name": "fesem", "k": 10**6}}, "fesem k must be at most 1000"),
    ({"algorithm": {"name": "fedavg", "aggregator": {}}}, "algorithm has no setting 'aggregator'.*; it knows name, rate, server"),
    ({"engine": {"threads": 10**5}}, "engine.threads and workers must be at most 1024, got 100000 and 0"),
    ({"engine": {"workers": 10**5}}, "engine.threads and workers must be at most 1024"),
    ({"engine": {"device": "tpu"}}, "engine.device must be auto, cpu, cuda or cuda:N"),
    ({"evaluate": {"every": 0}}, "evaluate.every must be at least 1"),
]


@pytest.mark.parametrize(("tables", "message"), WRONG, ids=lambda x: str(x)[:40])
def test_a_wrong_recipe_is_refused_with_a_reason(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        experiment({**BASE, **tables})


@pytest.mark.parametrize("build", [*DATASETS.values(), *MODELS.values()], ids=lambda f: f.__name__)
def test_defaults_can_be_written_down_and_read_back(build: Any) -> None:
    hints, known = get_type_hints(build), inspect.signature(build).parameters
    for name, value in json.loads(json.dumps(defaults(build, {}))).items():
        assert convert(value, hints[name], name) == known[name].default
    assert not defaults(build, known)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (PaperSplit, "beta"),
        (PaperSplit, "eps"),
        (Aggregator, "lr"),
        (LocalTraining, "lr"),
        (LocalTraining, "weight_decay"),
        (LocalTraining, "prox"),
        (Evaluate, "checkpoint_seconds"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_settings_are_finite(kind: Any, name: str, value: float) -> None:
    with pytest.raises(InputError, match="finite"):
        kind(**{name: value})


WRONG_DATA = [
    ({"data": {"name": "digit"}}, "unknown data set 'digit' .did you mean digits.*; choose from"),
    ({"data": {}}, "unknown data set None"),
    ({"data": {"name": "digits", "seed": -1}}, r"data.seed must be in 0\.\.2\^32-1, got -1"),
    ({"data": {"name": "digits", "sizes": 3}}, "data has no setting 'sizes'"),
    ({"data": {"name": "digits", "groups": 5}}, "data.groups must be a list"),
    ({"data": {"name": "digits", "groups": [{"clients": 5, "noize": 1}]}}, r"data.groups\[0\] has no setting 'noize'.*noise"),
    ({"data": {"name": "digits", "groups": [{}]}}, r"data.groups\[0\] needs clients"),
    ({"data": {"name": "digits", "groups": [{"clients": 5, "noise": math.inf}]}}, r"noise must be in 0\.\.1,000,000.*got inf"),
    ({"data": {"name": "digits", "groups": [{"clients": 5, "rotate": math.inf}]}}, "rotate must be finite, got inf"),
    ({"data": {"name": "digits", "groups": [{"clients": 5, "blur": 1e9}]}}, "blur must be at most 8, the longer side"),
    ({"data": {"name": "digits", "groups": [{"clients": 5000}]}}, "5000 clients of 12 samples need 60000"),
]


@pytest.mark.parametrize(("tables", "message"), WRONG_DATA, ids=lambda x: str(x)[:40])
def test_a_wrong_federation_is_refused_with_a_reason(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        experiment({**BASE, **tables}).federation()


def test_a_preset_sets_local_training_and_the_recipe_wins() -> None:
    fedprox = {"name": "fedprox"}
    assert experiment({**BASE, "algorithm": fedprox}).local.prox == 0.01
    assert experiment({**BASE, "algorithm": fedprox, "local": {"prox": 0.5}}).local.prox == 0.5
    assert experiment(BASE).local.prox == 0


def test_what_a_run_saves_is_the_experiment_again() -> None:
    job = load("digits", ["algorithm.server.momentum=0.9", "data.groups.1.noise=0.5", "seed=3"])
    again = experiment(json.loads(json.dumps(job.to_json())))
    assert again.to_json() == job.to_json()
    assert again.algorithm == job.algorithm
    assert torch.equal(again.federation().x[:], job.federation().x[:])


@pytest.mark.parametrize("name", sorted(recipes()))
def test_every_shipped_recipe_is_a_valid_experiment(name: str) -> None:
    job = load(name)
    assert job.about, "a recipe says what it is in `about`"


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["data.name=[]"], r"unknown data set \[\]"),
        (["model.name={}"], "unknown model {}"),
        (["data.groups.².clients=5"], r"groups has entries 0\.\.1, got '²'"),
        (["model.hidden=[3]", "model.hidden.0.x=5"], r"hidden\.0 is a value, not a table, so x of it cannot be set"),
        (["model=5", "model.name=cnn"], "model is a value, not a table"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_odd_assignments_are_refused_with_a_reason(sets: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load("digits", sets).defaults()


def test_unreadable_recipes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither a file nor one of .*digits"):
        read_recipe("nonsense")
    for content in (b"rounds = ", b"\xff\xfe", b"[a]\n[a]", b"rounds = " + b"9" * 5000):
        (tmp_path / "r.toml").write_bytes(content)
        with pytest.raises(InputError, match="not a TOML recipe"):
            read_recipe(tmp_path / "r.toml")


def test_epochs_that_are_set_take_the_place_of_a_recipes_steps() -> None:
    local = load("digits", ["local.epochs=2"]).local
    assert (local.steps, local.epochs) == (None, 2)
    back = load({**BASE, "local": {"epochs": 2}}, ["local.steps=3"]).local
    assert (back.steps, back.epochs) == (3, None)
    with pytest.raises(InputError, match="steps or epochs, not both"):
        load("digits", ["local.epochs=2", "local.steps=3"])
