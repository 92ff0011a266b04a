"""Distances between perception vectors, whole and in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedgwc.algorithms.fedgwc import perception
from fedgwc.algorithms.perception import add_distances, perception_distances
from fedgwc.core.errors import InputError


def loop(V: np.ndarray, visits: np.ndarray) -> np.ndarray:
    """The definition, pair by pair."""
    K = len(V)
    filled = np.where(visits > 0, V, np.diag(V)[:, None])
    away = np.diag(visits) == 0
    filled[away] = filled[~away].mean(0)
    distances = np.zeros((K, K))
    for k in range(K):
        for j in range(K):
            others = [i for i in range(K) if i not in (k, j)]
            distances[k, j] = ((filled[k, others] - filled[j, others]) ** 2).mean() if others and k != j else 0.0
    return distances


def windows(K: int = 31) -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    visits = rng.poisson(1.0, (K, K))
    np.fill_diagonal(visits, 5)
    if K > 3:
        visits[1], visits[:, 1] = 0, 0  # one client was away
    return [rng.random((K, K)), rng.random((K, K))], visits


@pytest.mark.parametrize("K", [2, 3, 17])
def test_distances_equal_the_loop(K: int) -> None:
    (V, _), visits = windows(K)
    np.testing.assert_allclose(perception_distances(V, visits), loop(V, visits), atol=1e-12)


@pytest.mark.parametrize("large", [8, 30, 1024], ids=["blocks", "a block and one client", "whole"])
def test_views_add_up(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perception, "LARGE", large)
    views, visits = windows()
    before = np.random.default_rng(1).random((31, 31))
    before += before.T
    expected = before + sum(loop(V, visits) for V in views)
    small = np.float32 if large < 31 else np.float64
    distances = add_distances(before.astype(small), [V.astype(small) for V in views], visits)
    assert distances.dtype == small
    np.testing.assert_allclose(distances, expected, rtol=1e-5)
    np.testing.assert_array_equal(distances, distances.T)


def test_only_what_is_given_away_is_written_to() -> None:
    (V, _), visits = windows()
    before = V.copy()
    perception_distances(V, visits)
    np.testing.assert_array_equal(V, before)


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match="NaN"):
        perception_distances([[0.0, np.nan], [0.0, 0.0]], np.ones((2, 2)))
    cases: tuple[tuple[Any, str], ...] = (
        ([[1, np.nan], [1, 1]], "visits must be counts, finite and >= 0, got NaN"),
        ([[1, -1], [1, 1]], r"visits must be counts, finite and >= 0, got -1\.\.1"),
        (np.ones((3, 3)), r"visits must be of the shape \(2, 2\), .* got \(3, 3\)"),
        ([[1, 1], [1]], "visits must be numbers, in rows of one length"),
    )
    for visits, message in cases:
        with pytest.raises(InputError, match=message):
            perception_distances(np.zeros((2, 2)), visits)
