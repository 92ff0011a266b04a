"""Scores of models: numbers that can be done in the head, and the clients that have nothing to be scored on."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from sklearn.metrics import balanced_accuracy_score

from fedgwc.core.errors import InputError
from fedgwc.core.types import Scores
from fedgwc.metrics import accuracy, balanced_accuracy, classification, weighted_accuracy
from fedgwc.metrics.table import METRICS, Evaluated, evaluate


def scores(correct: list[list[float]], total: list[list[float]], loss: list[float] | None = None) -> Scores:
    n = len(total)
    return Scores(np.arange(n), np.array(loss or [1.0] * n), np.array(correct, float), np.array(total, float))


# Client 0: recalls 6/8 and 1/2, nothing of class 2. Client 1: class 1 only, all right.
TWO = scores([[6, 1, 0], [0, 10, 0]], [[8, 2, 0], [0, 10, 0]], [0.5, 0.1])
TRAINED = [[10, 30, 60], [0, 5, 5]]


def test_examples_in_the_docs() -> None:
    assert doctest.testmod(classification).failed == 0


def test_numbers_by_hand() -> None:
    assert accuracy(TWO).tolist() == [0.7, 1.0]
    assert balanced_accuracy(TWO).tolist() == [0.625, 1.0]  # (3/4 + 1/2) / 2
    assert weighted_accuracy(TWO, TRAINED).tolist() == [0.5625, 1.0]  # (1 * 3/4 + 3 * 1/2) / 4: class 2 is not in the test set


def summary(of: Scores, train_counts: ArrayLike | None) -> dict[str, float]:
    """The scores of an evaluation that are averages over clients."""
    counts = None if train_counts is None else np.asarray(train_counts, np.float64)
    averages = {name: METRICS[name] for name in ("accuracy", "balanced_accuracy", "weighted_accuracy", "loss")}
    return evaluate(Evaluated(of, np.zeros(len(of.clients), np.int64), counts), averages)


def test_summary_by_hand() -> None:
    assert summary(scores([[6, 1, 0], [0, 30, 0]], [[8, 2, 0], [0, 30, 0]], [0.5, 0.1]), TRAINED) == pytest.approx(
        {
            "accuracy": 0.85,
            "balanced_accuracy": 0.8125,
            "weighted_accuracy": 0.78125,
            "accuracy_by_size": 37 / 40,
            "balanced_accuracy_by_size": (10 * 0.625 + 30) / 40,
            "weighted_accuracy_by_size": (10 * 0.5625 + 30) / 40,
            "loss": 0.3,
        }
    )


def test_untrained_classes_weigh_the_same() -> None:
    assert weighted_accuracy(TWO, [[0, 0, 9], [0, 0, 0]]).tolist() == balanced_accuracy(TWO).tolist()


def test_a_client_without_test_samples_is_left_out() -> None:
    some = scores([[1, 1], [0, 0]], [[2, 2], [0, 0]], [0.2, np.nan])
    assert np.isnan(accuracy(some)).tolist() == np.isnan(balanced_accuracy(some)).tolist() == [False, True]
    assert set(summary(some, [[1, 1], [1, 1]]).values()) == {0.5, 0.2}
    nobody = scores([[0, 0]], [[0, 0]], [np.nan])
    assert np.isnan(list(summary(nobody, [[1, 1]]).values())).all()


def test_what_is_unknown_is_left_out() -> None:
    by_class = summary(scores([[6, 1], [0, 30]], [[8, 2], [0, 30]], [0.5, 0.1]), None)
    assert set(by_class) == {"loss", *(f"{k}{s}" for k in ("accuracy", "balanced_accuracy") for s in ("", "_by_size"))}
    in_one_column = summary(scores([[7], [30]], [[10], [30]], [0.5, 0.1]), [[5, 5], [0, 9]])
    assert in_one_column == pytest.approx({"accuracy": 0.85, "accuracy_by_size": 37 / 40, "loss": 0.3})
    assert in_one_column["accuracy"] == by_class["accuracy"]


def test_a_diverged_model_stays_visible() -> None:
    assert np.isnan(summary(scores([[1], [1]], [[1], [1]], [0.2, np.nan]), [[1], [1]])["loss"])


@pytest.mark.parametrize(
    ("counts", "message"),
    [([[1, 1, 1]], "shape"), ([[1, -1, 0]] * 2, "class 1"), ([[1, np.nan, 0]] * 2, "finite"), ([1, 2], "clients, classes")],
)
def test_impossible_training_counts(counts: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        weighted_accuracy(TWO, counts)  # type: ignore[arg-type]


relaxed = settings(deadline=None)  # machines that run tests are busy
cells = st.integers(0, 9).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))
tables = st.integers(1, 4).flatmap(lambda c: st.lists(st.lists(cells, min_size=c, max_size=c), min_size=1, max_size=4))


@relaxed
@given(tables)
def test_bounds_and_orders(table: list[list[tuple[int, int]]]) -> None:
    array = np.array(table, float)  # [n, C, 2]
    trained = np.arange(array[:, :, 0].size).reshape(array.shape[:2]) % 3
    got = summary(Scores(np.arange(len(array)), np.ones(len(array)), array[..., 0], array[..., 1]), trained)
    assert all(type(v) is float and (np.isnan(v) or -1e-12 <= v <= 1 + 1e-12) for v in got.values())
    rows, columns = np.random.default_rng(1).permutation(len(array)), np.random.default_rng(2).permutation(array.shape[1])
    moved = array[rows][:, columns]
    other = summary(Scores(rows, np.ones(len(rows)), moved[..., 0], moved[..., 1]), trained[rows][:, columns])
    assert other == pytest.approx(got, nan_ok=True)


@relaxed
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_balanced_accuracy_is_scikit_learns(answers: list[tuple[int, int]]) -> None:
    truth, guess = np.array(answers).T
    total, correct = np.bincount(truth, minlength=4), np.bincount(truth[truth == guess], minlength=4)
    ours = balanced_accuracy(scores([correct.tolist()], [total.tolist()]))[0]
    recalls = [np.mean(guess[truth == c] == c) for c in np.unique(truth)]
    assert ours == pytest.approx(np.mean(recalls))
    if len(set(truth)) > 1 and set(guess) <= set(truth):  # scikit-learn warns about one class, or guesses of absent ones
        assert ours == pytest.approx(balanced_accuracy_score(truth, guess))
