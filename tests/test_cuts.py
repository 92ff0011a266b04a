"""Clouds of clients: where they divide, that those without groups are left alone, and their coordinates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group

from fedgwc import cuts
from fedgwc.cuts import ENOUGH, best_by_chance, best_cut, seen_across
from fedgwc.perception import perception_distances
from fedgwc.spectral import coordinates, davies_bouldin


def clearer_than_chance(score, shape, min_size, draws):
    return score < best_by_chance(shape, min_size, draws, enough=score)


def whitened(x):
    return np.linalg.svd(x - x.mean(0), full_matrices=False)[0] * np.sqrt(len(x))


def test_a_line_by_hand():
    """Groups around -1 and 1, half a unit wide each way: (1/4 + 1/4) / 2."""
    cut = best_cut(np.array([[-1.25], [-0.75], [0.75], [1.25]]), min_size=2)
    assert cut.labels.tolist() == [0, 0, 1, 1]
    assert cut.score == pytest.approx(0.25)
    assert cut.line.tolist() == [1.0]


def test_the_score_is_davies_bouldin_on_the_line():
    points = whitened(np.random.default_rng(0).standard_normal((40, 3)) + 3 * np.repeat([0, 1], 20)[:, None])
    cut = best_cut(points, 5)
    assert cut.score == pytest.approx(davies_bouldin(points @ cut.line[:, None], cut.labels))


@pytest.mark.parametrize("min_size", [1, 4, 15])
def test_the_best_of_a_loop_over_lines_and_sizes(monkeypatch, min_size):
    """Wherever the cloud lies, and however many lines are looked at together."""
    monkeypatch.setattr(cuts, "AT_ONCE", 100)
    points = np.array([5.0, -3.0]) + whitened(np.random.default_rng(0).standard_normal((30, 2)))

    def squares(group):
        return ((group - group.mean()) ** 2).sum()

    def on(line):
        x = np.sort(points @ line)
        n = min(range(min_size, 31 - min_size), key=lambda n: squares(x[:n]) + squares(x[n:]))
        return davies_bouldin(x[:, None], (np.arange(30) >= n).astype(int)), x[n - 1]

    cut = best_cut(points, min_size)
    score, last, line = min((*on(line), tuple(line)) for line in cuts._lines(2))
    assert cut.score == pytest.approx(score)
    assert cut.line.tolist() == list(line)
    lower = points @ np.array(line) <= last + 1e-9
    assert set(cut.labels[lower]).isdisjoint(cut.labels[~lower])


def test_groups_are_found_across_a_longer_axis_that_has_none():
    """Two groups 4 deviations apart along the short axis of a cloud that is five times as long the other way."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], [60, 40])
    x = np.stack([20 * rng.standard_normal(100), rng.standard_normal(100) + 4 * truth, rng.standard_normal(100)], 1)
    cut = best_cut(whitened(x @ ortho_group.rvs(3, random_state=1)), 5)
    assert (cut.labels != truth).sum() <= 3
    assert clearer_than_chance(cut.score, (100, 3), 5, draws=99)


def test_normal_clouds_are_rarely_clearer_than_chance():
    """One in a hundred of them, by definition."""
    rng = np.random.default_rng(10_000)
    clouds = [whitened(rng.standard_normal((60, 3))) for _ in range(40)]
    assert sum(clearer_than_chance(best_cut(c, 5).score, c.shape, 5, draws=99) for c in clouds) <= 1


def test_the_search_ends_at_the_first_cloud_that_is_clear_enough():
    scores = [best_by_chance((30, 2), 5, n, 0.0) for n in range(1, 9)]  # the best of more and more clouds
    assert scores == sorted(scores, reverse=True)
    assert best_by_chance((30, 2), 5, 8, enough=scores[0]) == scores[0] > scores[-1]
    assert best_by_chance((30, 2), 5, 0, enough=0.0) == np.inf


def test_more_draws_are_stricter():
    shape = (30, 2)
    scores = np.linspace(0.1, 0.6, 26)
    few, many = ([clearer_than_chance(s, shape, 5, n) for s in scores] for n in (10, 40))
    assert few[0]
    assert many[0]
    assert all(f or not m for f, m in zip(few, many, strict=True))


def test_many_clients_are_compared_with_enough():
    assert clearer_than_chance(0.3, (10**6, 2), 5, 5) == clearer_than_chance(0.3, (ENOUGH, 2), 5, 5)


@given(st.integers(0, 10**6))
def test_a_cut_does_not_depend_on_the_order_of_clients(seed):
    rng = np.random.default_rng(seed)
    points = whitened(rng.standard_normal((12, 2)))
    order = rng.permutation(12)
    a, b = best_cut(points, 3), best_cut(points[order], 3)
    assert a.score == pytest.approx(b.score)
    assert (a.labels[order] == b.labels).all() or (a.labels[order] != b.labels).all()
    assert np.bincount(a.labels).min() >= 3
    assert a.labels[0] == b.labels[0] == 0


def test_a_plane_shows_the_cut_from_the_side():
    points = whitened(np.random.default_rng(0).standard_normal((40, 3)) + 3 * np.repeat([0, 1], 20)[:, None])
    cut = best_cut(points, 5)
    seen = seen_across(points, cut)
    np.testing.assert_allclose(seen[:, 0], points @ cut.line)
    assert abs(np.corrcoef(seen.T)[0, 1]) < 1e-9
    assert seen_across(points[:, :1], best_cut(points[:, :1], 5))[:, 1].tolist() == [0.0] * 40


def test_nothing_to_cut():
    assert best_cut(np.zeros((10, 0)), 2) is None
    assert best_cut(np.zeros((10, 1)), 2) is None
    assert best_cut(np.arange(3.0)[:, None], 2) is None


def test_coordinates_are_the_axes_of_the_points():
    """Distances of points in the plane give their principal axes back, whatever turn they had, with variance 1."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 2)) * [3, 1]
    squared = ((x[:, None] - x) ** 2).sum(2)
    found = coordinates(squared, 3)
    assert found.shape == (50, 2)  # a third axis is not there
    expected = whitened(x)
    for axis in range(2):
        assert abs(np.corrcoef(found[:, axis], expected[:, axis])[0, 1]) == pytest.approx(1)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(found.std(0), 1)
    np.testing.assert_allclose(
        np.abs(coordinates(squared + 0.5 * (1 - np.eye(50)), 2)), np.abs(found), atol=1e-9
    )  # noise adds alike
    assert coordinates(np.zeros((5, 5)), 3).shape == (5, 0)
    assert coordinates(np.zeros((1, 1)), 3).shape == (1, 0)


def test_many_clients_have_the_same_coordinates():
    x = np.random.default_rng(0).standard_normal((500, 4)) * [8, 4, 2, 1]
    found = coordinates(((x[:, None] - x) ** 2).sum(2), 2)  # above DENSE_EIGEN: only the eigenvectors needed
    for axis in range(2):
        assert abs(np.corrcoef(found[:, axis], whitened(x)[:, axis])[0, 1]) > 0.9999


def test_pairs_that_never_met_do_not_look_far():
    V = np.repeat([[0.2], [0.2], [0.8], [0.8]], 4, 1)
    visits = np.full((4, 4), 3)
    whole = perception_distances(V, visits)
    visits[0, 3] = visits[3, 0] = 0
    V[0, 3] = V[3, 0] = 0.0  # as a fresh matrix has it
    np.testing.assert_allclose(perception_distances(V, visits), whole)
    np.testing.assert_allclose(
        whole, [[0, 0, 0.36, 0.36], [0, 0, 0.36, 0.36], [0.36, 0.36, 0, 0], [0.36, 0.36, 0, 0]], atol=1e-12
    )
