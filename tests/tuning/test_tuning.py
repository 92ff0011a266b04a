"""Tuning: as many trials for every method, on validation samples; the same whatever interrupts it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch

import fedgwc.tuning.trial as trial_module
from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.assignments import flatten
from fedgwc.core.errors import InputError
from fedgwc.data import DATASETS, Federation
from fedgwc.data.sources.digits import digits
from fedgwc.runs.experiment import load
from fedgwc.runs.loop import Result, run
from fedgwc.runs.progress import SILENT
from fedgwc.tuning.search import Plan, Trial, best_trials, n_done, tune
from fedgwc.tuning.spaces import Recipe, tuned_methods
from fedgwc.tuning.trial import Reporter, TrialResult
from fedgwc.tuning.tuned import save_tuning, summary, tuned_settings

QUICK = ("rounds=2", "data.groups=[{clients=6}]", "model.hidden=[4]", "local.steps=1", "evaluate.every=1")


def planned(algorithms: Sequence[str] = ("fedavg", "ifca"), n_trials: int = 2, sets: Sequence[str] = (), **more: Any) -> Plan:
    recipe = Recipe("digits", (*QUICK, *sets))
    return Plan(recipe, tuned_methods(recipe, list(algorithms), more.pop("spaces", ())), n_trials, **more)


def done(plan: Plan, folder: Path, jobs: int = 1) -> list[Trial]:
    going = tune(plan, folder, jobs)
    while True:
        try:
            next(going)
        except StopIteration as end:
            return list(end.value)


def said(trials: Sequence[Trial]) -> list[Any]:
    """What trials say, apart from the time that they took."""
    found = []
    for t in trials:
        r = t.result
        effort = {measure: cost for measure, cost in r.effort.items() if measure != "seconds"}
        found.append((t.method, t.number, t.settings, r.state, r.accuracies, r.losses, r.pruned_at, effort))
    return found


# Spaces


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_has_a_space_around_its_defaults(name: str) -> None:
    [method] = tuned_methods(Recipe("digits"), [name])
    assert f"{name}.local.lr" in method.space
    assert all(method.defaults[key] in search for key, search in method.space.items())
    usual = flatten(load("digits", [f"algorithm.name={name}"]).to_json())
    for key, value in method.defaults.items():
        own = key.removeprefix(f"{name}.")
        assert usual[own if own.startswith("local.") else f"algorithm.{own}"] == value


def keys(name: str, *sets: str, spaces: Sequence[str] = ()) -> set[str]:
    [method] = tuned_methods(Recipe("digits", sets), [name], spaces)
    return {key.removeprefix(f"{name}.") for key in method.space}


def test_what_is_off_is_not_searched() -> None:
    assert keys("alone") == {"local.lr"}
    assert keys("fedavg") == {"local.lr"}
    assert keys("fedavgm") == {"local.lr", "server.momentum"}
    assert keys("fedprox") == {"local.lr", "local.prox"}
    assert keys("fedgwc") - keys("fedgwc-release") == {"alpha"}  # there it is 0, for another rule


def test_local_steps_are_searched_where_a_budget_makes_work_equal() -> None:
    assert "local.steps" not in keys("fedavg", "evaluate.budget.updates=1000")
    assert "local.steps" in keys("fedavg", "evaluate.budget.steps=1000")


def test_what_is_set_is_fixed_and_what_the_user_searches_is_searched() -> None:
    assert keys("ifca", "ifca.k=3") == keys("ifca", "algorithm.k=3") == {"local.lr"}
    assert keys("ifca", "local.lr=0.1") == keys("ifca", "ifca.local.lr=0.1") == {"k"}
    assert keys("fesem", spaces=["fesem.start=common,independent"]) == {"k", "start", "local.lr"}
    [method] = tuned_methods(Recipe("digits"), ["fedavg"], ["local.lr=1..2", "fedavg.local.batch=2..4"])
    assert not method.space["fedavg.local.lr"].is_whole  # type: ignore[union-attr]
    assert method.defaults == {"fedavg.local.lr": 1.0, "fedavg.local.batch": 4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithms": ["nope"]}, "unknown algorithm 'nope'"),
        ({"sets": ["data.validation=0.0"]}, r"no.*hold some out: --set data\.validation=0\.2"),
        ({"sets": ["local.lr=0.1"], "algorithms": ["fedavg"]}, r"nothing to search.*--space fedavg\.local\.lr=log:0\.01\.\.1"),
        ({"sets": ["algorithm.name=ifca"]}, "--algorithms"),
        ({"spaces": ["ifca.kk=2..3"]}, r"ifca has no setting 'kk' \(did you mean k\?\); it knows"),
        ({"spaces": ["local.lrr=2..3"]}, r"no setting 'lrr' \(did you mean lr\?\); it knows"),
        ({"spaces": ["ifca.k=0..3"]}, "ifca k must be at least 1, got 0"),
        ({"spaces": ["ifca.k=1.5..3"]}, "must be a whole number"),
        ({"spaces": ["cfl.eps1=1..2"]}, "of no method that is tuned; these are fedavg, ifca, or local"),
        ({"spaces": ["data.alpha=1..2"]}, r"a condition and no choice.*--sweep data\.alpha"),
        ({"spaces": ["k=2..3"]}, "written KEY=SPACE"),
        ({"n_trials": 0}, r"--trials of a tuning must be in 1\.\.10,000, got 0"),
        ({"n_seeds": 0}, r"--seeds of a tuning must be in 1\.\.1,000, got 0"),
    ],
)
def test_slips_are_told_before_anything_runs(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        planned(**change)


# Trials


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Trial]]:
    """Seven trials of two methods: a batch of five, and two that know its outcome."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, done(planned(n_trials=7), folder)


def test_every_method_gets_as_many_trials_on_the_same_seeds(whole: tuple[Path, list[Trial]]) -> None:
    folder, trials = whole
    assert [(t.method, t.number) for t in trials] == [(name, n) for name in ("fedavg", "ifca") for n in range(7)]
    assert trials[0].settings == {"fedavg.local.lr": 0.1}
    assert trials[7].settings == {"ifca.k": 2, "ifca.local.lr": 0.1}
    for t in trials:
        if t.result.state == "complete":
            assert len(t.result.accuracies) == 2
            assert t.result.effort["updates"] == 2 * 2 * 3  # seeds, rounds, clients
    assert {p.name for p in folder.glob("*/trial-000/seed*")} == {"seed10000", "seed10001"}


def test_a_tuning_that_was_interrupted_ends_as_one_that_was_not(whole: tuple[Path, list[Trial]], tmp_path: Path) -> None:
    for n_more in (3, 4):
        going = tune(planned(n_trials=7), tmp_path, 1)
        for _ in range(n_more):
            next(going)
        going.close()
    assert n_done(tmp_path) == 7
    assert said(done(planned(n_trials=7), tmp_path)) == said(whole[1])


@pytest.mark.slow
def test_processes_change_nothing(whole: tuple[Path, list[Trial]], tmp_path: Path) -> None:
    assert said(done(planned(n_trials=7), tmp_path, jobs=2)) == said(whole[1])


def test_more_trials_are_added_to_those_that_are_there(tmp_path: Path) -> None:
    first = done(planned(["fedavg"], 1), tmp_path)
    both = done(planned(["fedavg"], 2), tmp_path)
    assert said(both)[:1] == said(first)
    assert len(both) == 2
    with pytest.raises(InputError, match="holds a tuning with other methods; repeat its command"):
        done(planned(["fedavg"], 2, ["local.batch=3"]), tmp_path)
    with pytest.raises(InputError, match="not an empty folder, and holds no tuning"):
        done(planned(["fedavg"]), tmp_path / "fedavg")


def test_shuffled_test_labels_change_no_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def usual(*, seed: int, train_size: int = 12, test_size: int = 5) -> Federation:
        return digits(seed=seed, train_size=train_size, test_size=test_size)

    def with_other_tests(*, seed: int, train_size: int = 12, test_size: int = 5) -> Federation:
        made = usual(seed=seed, train_size=train_size, test_size=test_size)
        y, rows = made.y.clone(), torch.from_numpy(np.unique(made.test.flat))
        y[rows] = y[rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))]]
        return replace(made, y=y)

    found = []
    for build in (usual, with_other_tests):
        monkeypatch.setitem(DATASETS, "its", build)
        recipe = Recipe("digits", ("data.name=its", "rounds=2", "evaluate.every=1"))
        plan = Plan(recipe, tuned_methods(recipe, ["ifca"]), 2, 1)
        trials = done(plan, tmp_path / build.__name__)
        rows = [
            json.loads(line)
            for p in sorted((tmp_path / build.__name__).rglob("metrics.jsonl"))
            for line in p.read_text().splitlines()
        ]
        found.append((said(trials), [row["accuracy"] for row in rows]))
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]


def test_what_fails_costs_nobody_else_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_for_ifca(job: Any, *args: Any, **more: Any) -> Result:
        if job.algorithm_name == "ifca":
            raise InputError("no such thing")
        return run(job, *args, **more)

    monkeypatch.setattr(trial_module, "run", fails_for_ifca)
    plan = planned()
    trials = done(plan, tmp_path)
    assert [t.result.state for t in trials] == ["complete"] * 2 + ["failed"] * 2
    assert list(best_trials(trials)) == ["fedavg"]
    save_tuning(plan, trials, tmp_path)
    assert {setting.split(".")[0] for setting in tuned_settings(tmp_path)} == {"fedavg"}
    assert "no such thing" in (tmp_path / "trials.csv").read_text()
    assert summary(plan, trials).rows[1][3:6] == ["2", "–", "–"]


# Choices


def trial(method: str, number: int, accuracy: float, loss: float, state: str = "complete") -> Trial:
    return Trial(method, number, {f"{method}.local.lr": 0.1 + number}, TrialResult(state, (accuracy,), (loss,)))


def test_the_best_has_the_highest_accuracy_then_the_lowest_loss_then_came_first() -> None:
    trials = [trial("a", 0, 0.5, 1), trial("a", 1, 0.7, 3), trial("a", 2, 0.7, 2), trial("a", 3, 0.7, 2)]
    assert best_trials([*trials, trial("a", 4, 0.9, 1, "pruned")])["a"].number == 2


def test_a_trial_below_the_median_is_given_up_after_half_of_its_rounds() -> None:
    """Three trials had 0.5 in every round of ten; the fourth has 0.4, the fifth 0.5."""
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(3, n_warmup_steps=5))
    for _ in range(3):
        earlier = study.ask()
        for step in range(1, 11):
            earlier.report(0.5, step)
        study.tell(earlier, 0.5)
    worse, as_good = (Reporter(study.ask(), 0, set(), SILENT) for _ in range(2))
    for number in range(1, 11):
        as_good.evaluated({"round": number, "validation_accuracy": 0.5})
    for number in range(1, 5):
        worse.evaluated({"round": number, "validation_accuracy": 0.4})
    with pytest.raises(optuna.TrialPruned):
        worse.evaluated({"round": 5, "validation_accuracy": 0.4})


def test_what_is_found_is_a_piece_of_a_recipe_for_its_method_only(whole: tuple[Path, list[Trial]], tmp_path: Path) -> None:
    save_tuning(planned(n_trials=7), whole[1], tmp_path)
    best = best_trials(whole[1])
    tables = tomllib.loads((tmp_path / "tuned.toml").read_text())
    for name in ("fedavg", "ifca"):
        assert load({**tables, "algorithm": {"name": name}}).local.lr == best[name].settings[f"{name}.local.lr"]
        assert load("digits", [*tuned_settings(tmp_path), f"algorithm.name={name}"]).local.lr == tables[name]["local"]["lr"]
    assert load("digits", [*tuned_settings(tmp_path), "local.lr=0.7", "algorithm.name=ifca"]).local.lr == 0.7
    rows = (tmp_path / "trials.csv").read_text().splitlines()
    assert len(rows) == 1 + 14
    assert sum(",yes," in row for row in rows) == 2
