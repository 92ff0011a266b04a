"""Budgets: one rule for every method and measure, read from the rows of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import fedgwc
from fedgwc.algorithms import ALGORITHMS
from fedgwc.cli.app import main
from fedgwc.core.errors import InputError
from fedgwc.core.work import LocalTraining
from fedgwc.runs.budget import MEASURES, Budget, budget_settings, round_costs, spent
from fedgwc.runs.experiment import experiment
from fedgwc.runs.formats import current
from fedgwc.runs.loop import Result

# Ten of 100 clients a round, four steps with four samples each. Floats of 4 bytes: a 64-8-10 network.
QUICK = {
    "rounds": 4,
    "seed": 0,
    "data": {"name": "digits", "train_size": 12, "test_size": 5, "newcomers": 0.0, "groups": [{"clients": 100}]},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"steps": 4, "batch": 4},
    "evaluate": {"every": 1},
}
MODEL = 4 * (64 * 8 + 8 + 8 * 10 + 10)


def run(tmp_path: Path, budget: Mapping[str, float] | None = None, algorithm: str = "fedavg") -> Result:
    evaluate = {"every": 1, "budget": budget or {}}
    return fedgwc.run({**QUICK, "algorithm": {"name": algorithm}, "evaluate": evaluate}, tmp_path / "run")


@pytest.mark.parametrize(
    ("measure", "one_round"),
    [("updates", 10), ("steps", 40), ("samples", 160), ("bytes", 10 * (2 * MODEL + 8 + 4 * 4))],
)
def test_a_run_ends_with_the_first_round_that_reaches_its_budget(measure: str, one_round: int, tmp_path: Path) -> None:
    """A cost of one and a half rounds is reached by the second."""
    rows = run(tmp_path, {measure: one_round * 3 // 2}).metrics
    assert [spent(row, measure) for row in rows] == [one_round, 2 * one_round]


def test_every_row_has_every_measure(tmp_path: Path) -> None:
    for row in run(tmp_path).metrics:
        assert all(spent(row, measure) >= 0 for measure in MEASURES)
        assert row["peak_memory_bytes"] > 10**6


def test_ifca_is_billed_for_its_forward_passes(tmp_path: Path) -> None:
    """Two models are scored by ten clients on the training samples of each, and are sent to them for it."""
    last = run(tmp_path, {"updates": 10}, "ifca").last
    n_train = experiment(QUICK).federation().train.sizes[0]
    assert last["evaluations"] == 2 * 10 * n_train
    assert spent(last, "bytes") == 10 * (2 * MODEL + 8 + 4 * 4) + 2 * 10 * (MODEL + 4)


def test_a_budget_of_time_ends_a_run(tmp_path: Path) -> None:
    assert len(run(tmp_path, {"seconds": 1e-9}).metrics) == 1


@pytest.mark.parametrize("measure", ["updates", "steps", "samples", "bytes"])
def test_a_budget_below_one_round_is_refused_before_there_is_a_folder(measure: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"a round costs at least .* {measure}, .*; allow more"):
        run(tmp_path, {measure: 9})
    assert not (tmp_path / "run").exists()


def test_a_run_that_ends_with_its_rounds_says_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = [x for s in ("data.groups=[{clients=20}]", "model.hidden=[8]") for x in ("--set", s)]
    with pytest.raises(SystemExit):
        main(["run", "digits", "-s", "algorithm.name=fedavg", *sets, "--budget", "rounds=2", "--budget", "updates=1k", "-o",
              str(tmp_path / "r")])  # fmt: skip
    assert "ended with round 2 at 6 of 1,000 updates; rounds=N allows more rounds" in capsys.readouterr().err


def test_costs_of_a_round_are_those_of_the_smallest_clients() -> None:
    """Three of four clients: 1, 2 and 6 samples are 1, 1 and 3 steps with batches of 1, 2 and 2."""
    found = round_costs(ALGORITHMS["fedavg"], np.array([6, 2, 1, 8]), LocalTraining(batch=2), 100)
    assert found == {"updates": 3, "bytes": 600, "steps": 1 + 1 + 3, "samples": 1 + 2 + 6}
    assert round_costs(object(), np.array([1]), None, 1) == {}  # type: ignore[arg-type]


def test_amounts_as_they_are_typed() -> None:
    typed = ["updates=200000", "bytes = 2.5G", "steps=3k", "samples=1e6", "seconds=0.5", "rounds=7"]
    settings = ["updates=200000", "bytes=2500000000", "steps=3000", "samples=1000000", "seconds=0.5"]
    assert budget_settings(typed) == [*(f"evaluate.budget.{s}" for s in settings), "rounds=7"]


@pytest.mark.parametrize("text", ["updates", "updates=", "updates=-3", "updates=0", "updates=ten", "bytes=1..2", "seconds=inf"])
def test_amounts_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="a budget is a number such as"):
        budget_settings([text])


def test_an_unknown_measure_names_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown budget 'update' \(did you mean updates\?\); a budget is one of rounds"):
        budget_settings(["update=3"])
    with pytest.raises(InputError, match="must be positive and finite, got 0"):
        Budget(updates=0)


def test_recipes_of_0_1_0_keep_their_budget() -> None:
    assert experiment(current({"evaluate": {"client_updates": 5}})).evaluate.budget == Budget(updates=5)
    assert experiment(current({"evaluate": {"client_updates": None, "every": 3}})).evaluate.budget == Budget()


def test_the_old_option_says_what_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compare", "digits", "--equal", "updates"])
    assert "write --budget updates=N" in capsys.readouterr().err
