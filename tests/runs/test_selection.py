"""Which evaluation of a run is reported."""

from __future__ import annotations

import math

import pytest

from fedgwc.core.errors import InputError
from fedgwc.runs.selection import best, mean_of_last

ROWS = [
    {"round": 1, "accuracy": 0.9, "validation_accuracy": 0.5, "validation_loss": 1.0},
    {"round": 2, "accuracy": 0.1, "validation_accuracy": 0.7, "validation_loss": 0.9},
    {"round": 3, "accuracy": 0.2, "validation_accuracy": 0.7, "validation_loss": 0.4},
    {"round": 4, "accuracy": 0.3, "validation_accuracy": 0.7, "validation_loss": 0.4},
]


def test_the_best_round_is_best_on_validation_whatever_the_test_says() -> None:
    assert best(ROWS)["round"] == 3
    assert best([{**row, "accuracy": 1 - row["accuracy"]} for row in ROWS])["round"] == 3


def test_a_loss_is_better_where_it_is_lower() -> None:
    assert best(ROWS[:3], "loss")["round"] == 3


def test_a_model_that_diverged_is_never_best() -> None:
    assert best([{"round": 9, "validation_accuracy": math.nan}, ROWS[0]])["round"] == 1


def test_mean_of_the_last_two() -> None:
    assert mean_of_last(ROWS, 2)["accuracy"] == 0.25
    assert mean_of_last(ROWS, 2)["round"] == 4


def test_selection_needs_validation_samples() -> None:
    with pytest.raises(InputError, match=r"data\.validation=0\.2"):
        best([{"round": 1, "accuracy": 0.5}])
    with pytest.raises(InputError, match=r"'f1'.*accuracy, loss"):
        best(ROWS, "f1")
