"""Clouds of clients: where they divide, that those without groups are left alone, and their coordinates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, ortho_group
from sklearn.mixture import GaussianMixture

from fedgwc.algorithms.auto.cuts import NARROWEST, Cut, best_cut, seen_across, standing_cuts
from fedgwc.algorithms.perception import perception_distances
from fedgwc.algorithms.spectral import coordinates, davies_bouldin
from fedgwc.core.types import Floats, Ids
from fedgwc.metrics import adjusted_rand_index


def whitened(x: Floats) -> Floats:
    white: Floats = np.linalg.svd(x - x.mean(0), full_matrices=False)[0] * np.sqrt(len(x))
    return white


def cut_of(points: Floats, min_size: int, most: int = 2) -> Cut:
    """Return the best cut, of points that have one."""
    cut = best_cut(points, min_size, most)
    assert cut is not None
    return cut


def cloud(seed: int, centres: list[float], sizes: list[int], long: float = 20.0) -> tuple[Floats, Ids]:
    """Groups of normal points around centres on one axis of three, turned; along another axis everybody differs far more."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.standard_normal((len(truth), 3)) * [long, 1, 1]
    x[:, 1] += np.asarray(centres)[truth]
    return whitened(x @ ortho_group.rvs(3, random_state=seed)), truth


def test_a_line_by_hand() -> None:
    """Groups around -1 and 1, a quarter of a unit wide each way: (1/4 + 1/4) / 2."""
    cut = cut_of(np.array([[-1.25], [-0.75], [0.75], [1.25]]), min_size=2)
    assert cut.labels.tolist() == [0, 0, 1, 1]
    assert cut.score == pytest.approx(0.25)
    assert cut.line.tolist() == [1.0]
    assert cut_of(np.array([[1.25], [0.75], [-0.75], [-1.25]]), min_size=2).line.tolist() == [-1.0]


def test_the_gain_of_two_places_by_hand() -> None:
    """One normal of variance 1, or halves that have the least variance there is; two numbers more, and nobody in doubt."""
    cut = cut_of(np.repeat([-1.0, 1.0], 10)[:, None], 5)
    better = np.log(1 / 2) - np.log(NARROWEST) / 2 + 1 / 2  # of every point's log-likelihood
    assert cut.gain == pytest.approx(2 * 20 * better - 2 * np.log(20), rel=1e-3)


def test_the_gain_of_three_places_by_hand() -> None:
    """Of each of the two beyond the first. Three places around 0 with a variance of 1."""
    cut = cut_of(np.sqrt(3 / 2) * np.repeat([-1.0, 0.0, 1.0], 10)[:, None], 5, 3)
    better = np.log(1 / 3) - np.log(NARROWEST) / 2 + 1 / 2
    assert cut.gain == pytest.approx((2 * 30 * better - 4 * np.log(30)) / 2, rel=1e-3)
    assert sorted(np.bincount(cut.labels).tolist()) == [10, 20]


def test_five_clients_tell_nothing_about_groups() -> None:
    """Each in a place of its own, they would be described as well as one likes."""
    assert cut_of(np.arange(5.0)[:, None] ** 2, 1, 5).gain == -np.inf


def likeliest(points: Floats, labels: Ids, min_size: int) -> Cut:
    return max(standing_cuts(points, labels, min_size), key=lambda cut: cut.gain)


SIX = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2])


@pytest.mark.parametrize("cut", [cut_of, lambda points, least: likeliest(points, (points[:, 0] > 1).astype(np.int64), least)])
def test_few_clients_tell_something_along_one_line_and_nothing_in_a_plane(cut: Callable[[Floats, int], Cut]) -> None:
    """Six in two tight groups. In a plane there is nearly always a line along which so few look like groups, up to nine."""
    assert cut(SIX[:, None], 2).gain > 15
    assert cut(SIX[:, None], 2).labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert cut(SIX[1:, None], 2).gain == -np.inf
    for K, tells in ((6, False), (9, False), (10, True)):
        plane = np.column_stack([np.resize(SIX, K), np.arange(K) % 2])
        assert (cut(plane, 2).gain > 15) == tells


@pytest.mark.parametrize("sizes", [[50, 50], [85, 15]])
def test_the_gain_is_that_of_scikit_learns_mixture(sizes: list[int]) -> None:
    """Two normals of one covariance by their EM, in one, two and all three axes, and the criterion from its definition."""
    points, truth = cloud(4, [0.0, 6.0], sizes)

    def gain(x: Floats) -> float:
        theirs = GaussianMixture(2, covariance_type="tied", n_init=20, random_state=0, tol=1e-9, max_iter=1000).fit(x)
        one = multivariate_normal(x.mean(0), np.cov(x.T, bias=True)).logpdf(x).sum()
        member = theirs.predict_proba(x)
        entropy = -(member * np.log(np.maximum(member, 1e-300))).sum()
        return float(2 * (theirs.score(x) * 100 - one) - (x.shape[1] + 1) * np.log(100) - 2 * entropy)

    cut = cut_of(points, 5)
    assert cut.gain == pytest.approx(max(gain(points[:, :m]) for m in (1, 2, 3)), abs=0.2)
    assert adjusted_rand_index(truth, cut.labels) > 0.9


def test_many_points_and_copies_of_one() -> None:
    points, truth = cloud(6, [0.0, 8.0], [3000, 1000], long=1.0)
    assert adjusted_rand_index(truth, cut_of(points, 5).labels) > 0.99
    assert best_cut(np.zeros((30, 2)), 5) is None


def test_the_score_is_davies_bouldin_on_the_line() -> None:
    points, _ = cloud(0, [0.0, 5.0], [20, 20])
    cut = cut_of(points, 5)
    assert cut.score == pytest.approx(davies_bouldin(points @ cut.line[:, None], cut.labels))
    assert (points @ cut.line)[cut.labels == 1].min() > (points @ cut.line)[cut.labels == 0].max()


@pytest.mark.parametrize("seed", range(3))
def test_groups_are_found_across_a_longer_axis_that_has_none(seed: int) -> None:
    """Two groups 5 deviations apart along the short axis of a cloud that is twenty times as long the other way."""
    points, truth = cloud(seed, [0.0, 5.0], [60, 40])
    cut = cut_of(points, 5)
    assert (cut.labels != truth).sum() <= 2
    assert cut.gain > 15


def test_the_middle_one_of_three_is_not_cut_through() -> None:
    points, truth = cloud(0, [0.0, 7.0, 14.0], [30, 40, 30])
    cut = cut_of(points, 5, 3)
    labels = cut.labels
    assert cut.gain > 15
    mixed = [len(np.unique(labels[truth == group])) > 1 for group in range(3)]
    assert mixed == [False] * 3


def test_axes_and_units_do_not_matter() -> None:
    points, _ = cloud(1, [0.0, 5.0], [60, 40])
    found, again = cut_of(points, 5), cut_of(points @ np.diag([1, 100, 0.01]) + 7, 5)
    assert again.gain == pytest.approx(found.gain, abs=0.1)
    assert again.labels.tolist() == found.labels.tolist()


@pytest.mark.parametrize("tails", ["normal", "heavy", "none"])
def test_one_cloud_is_one_group(tails: str) -> None:
    rng = np.random.default_rng(3)
    draw: dict[str, Callable[[tuple[int, int]], Floats]] = {
        "normal": rng.standard_normal,
        "heavy": lambda shape: rng.standard_t(5, shape),
        "none": lambda s: rng.uniform(size=s),
    }
    gains = [cut_of(whitened(draw[tails]((100, 5))), 5).gain for _ in range(20)]
    assert max(gains) < 15
    assert np.median(gains) < 0


def test_a_few_outliers_are_no_group() -> None:
    """They are put aside, and go to the nearer group in the end."""
    points, truth = cloud(2, [0.0, 6.0], [50, 50], long=1.0)
    points[:2] *= 30
    found = cut_of(points, 5)
    assert np.bincount(found.labels).min() >= 5
    assert adjusted_rand_index(truth[2:], found.labels[2:]) > 0.9


def test_what_is_left_of_a_few_points_is_no_group() -> None:
    rng = np.random.default_rng(0)
    found = [cut_of(whitened(rng.standard_normal((20, 2))), 5) for _ in range(60)]
    assert sum(cut.gain > -np.inf for cut in found) > 30
    assert max(cut.gain for cut in found) < 15


def test_where_groups_are_too_small_likes_are_parted_on_the_first_axis_for_no_gain() -> None:
    """Two of ten stand far off, and with one more they make a side: no other three and seven are as much alike."""
    on_axis = np.array([0.0, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 40.0, 41.0])
    cut = cut_of(on_axis[:, None], 3)
    assert cut.gain == -np.inf
    assert cut.labels.tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert cut_of(on_axis[:, None], 2).gain > 15
    assert cut_of(on_axis[5:, None], 2).gain == -np.inf  # five are too few to tell


@given(st.integers(6, 20), st.integers(1, 3), st.integers(0, 10**6))
def test_there_is_a_cut_wherever_there_are_clients_for_two_sides(K: int, min_size: int, seed: int) -> None:
    cut = cut_of(whitened(np.random.default_rng(seed).standard_t(2, (K, 2))), min_size)
    assert np.bincount(cut.labels).min() >= min_size


@given(st.integers(0, 10**6))
def test_a_cut_does_not_depend_on_the_order_of_clients(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, _ = cloud(seed % 1000, [0.0, 6.0], [7, 5], long=1.0)
    order = rng.permutation(12)
    a, b = best_cut(points, 3), best_cut(points[order], 3)
    assert (a is None) == (b is None)
    if a and b:
        assert a.gain == pytest.approx(b.gain, abs=0.1)
        assert (a.labels[order] == b.labels).all() or (a.labels[order] != b.labels).all()
        assert np.bincount(a.labels).min() >= 3
        assert a.labels[0] == b.labels[0] == 0


@pytest.mark.parametrize("one", [0, 1, 2])
def test_a_cut_that_was_made_before_stands(one: int) -> None:
    """Three groups at the corners of a triangle can be cut in three ways, and no way is better than the others.

    The first axis alone, along which they stand in a row, tells none of these.
    """
    corner = np.repeat([0, 1, 2], 10)
    corners, ring = (np.stack([np.cos(at), np.sin(at)], 1) for at in (np.radians([150, 30, 270]), np.arange(30) * 2 * np.pi / 10))
    points = corners[corner] + 0.1 * ring
    before = (corner == one).astype(np.int64)
    found = likeliest(points, before, 3)
    assert adjusted_rand_index(found.labels, before) == 1.0
    assert found.gain == pytest.approx(cut_of(points, 3).gain, rel=1e-3)
    some_elsewhere = np.where(np.arange(30) % 10 == 0, 1 - before, before)  # one of every corner on the wrong side
    assert likeliest(points, some_elsewhere, 3).labels.tolist() == found.labels.tolist()


def test_a_cut_of_too_few_does_not_stand() -> None:
    points = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 5.0, 5.1])[:, None]
    before = np.repeat([0, 1], [8, 2])
    assert standing_cuts(points, before, 3) == []
    assert likeliest(points, before, 2).labels.tolist() == before.tolist()


def test_a_plane_shows_the_cut_from_the_side() -> None:
    points, _ = cloud(0, [0.0, 5.0], [20, 20])
    cut = cut_of(points, 5)
    seen = seen_across(points, cut)
    np.testing.assert_allclose(seen[:, 0], points @ cut.line)
    assert abs(np.corrcoef(seen[:, 0], seen[:, 1])[0, 1]) < 1e-9
    assert seen_across(points[:, :1], cut_of(points[:, :1], 5))[:, 1].tolist() == [0.0] * 40


def test_nothing_to_cut() -> None:
    assert best_cut(np.zeros((10, 0)), 2) is None
    assert best_cut(np.arange(3.0)[:, None], 2) is None


def test_coordinates_are_the_axes_of_the_points() -> None:
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


def test_many_clients_have_the_same_coordinates() -> None:
    x = np.random.default_rng(0).standard_normal((500, 4)) * [8, 4, 2, 1]
    found = coordinates(((x[:, None] - x) ** 2).sum(2), 2)  # above DENSE_EIGEN: only the eigenvectors needed
    for axis in range(2):
        assert abs(np.corrcoef(found[:, axis], whitened(x)[:, axis])[0, 1]) > 0.9999


def test_pairs_that_never_met_do_not_look_far() -> None:
    V = np.repeat([[0.2], [0.2], [0.8], [0.8]], 4, 1)
    visits = np.full((4, 4), 3)
    whole = perception_distances(V, visits)
    visits[0, 3] = visits[3, 0] = 0
    V[0, 3] = V[3, 0] = 0.0  # as a fresh matrix has it
    np.testing.assert_allclose(perception_distances(V, visits), whole)
    np.testing.assert_allclose(
        whole, [[0, 0, 0.36, 0.36], [0, 0, 0.36, 0.36], [0.36, 0.36, 0, 0], [0.36, 0.36, 0, 0]], atol=1e-12
    )
