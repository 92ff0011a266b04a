"""Scores of clusters: numbers by hand, properties over all of them, and the Wasserstein distance against its definition."""

from __future__ import annotations

import doctest
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, linprog
from sklearn.metrics import davies_bouldin_score

from fedgwc import metrics
from fedgwc.metrics import clustering, wasserstein_adjusted, wasserstein_distances

from .tables import AGREEMENT_METRICS, CLUSTERING_METRICS

BOUNDS = {
    "wasserstein_adjusted_silhouette": (-1, 1),
    "wasserstein_adjusted_davies_bouldin": (0, math.inf),
    "rand_index": (0, 1),
    "adjusted_rand_index": (-0.5, 1),
}
relaxed = settings(deadline=None)  # machines that run tests are busy
Problem = tuple[NDArray[np.int64], NDArray[np.int64], np.random.Generator]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Counts [K, C] without empty rows, labels [K], and an rng to permute with."""
    k, c = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    row = st.lists(st.integers(0, 6), min_size=c, max_size=c).filter(any)
    counts = draw(st.lists(row, min_size=k, max_size=k))
    labels = draw(st.lists(st.integers(0, 3), min_size=k, max_size=k))
    return np.array(counts), np.array(labels), np.random.default_rng(draw(st.integers(0, 99)))


def same(a: float, b: float) -> bool:
    """Distances of equal clients are roots of what rounding left, up to 1e-7."""
    return a == pytest.approx(b, rel=1e-6, abs=1e-6, nan_ok=True)


def permuted_within_rows(counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.permuted(counts, axis=1)


def test_examples_in_the_docs() -> None:
    assert doctest.testmod(clustering).failed == 0


# Properties over all metrics


def test_every_metric_is_bounded_here_and_exported() -> None:
    assert set(BOUNDS) == set(CLUSTERING_METRICS) | set(AGREEMENT_METRICS) <= set(metrics.__all__)


@pytest.mark.parametrize("name", CLUSTERING_METRICS)
@relaxed
@given(problem=problems())
def test_clustering_metrics(name: str, problem: Problem) -> None:
    score, (counts, labels, rng) = CLUSTERING_METRICS[name], problem
    value, (low, high) = score(counts, labels), BOUNDS[name]
    assert type(value) is float
    assert math.isnan(value) or low <= value <= high
    assert math.isnan(value) or len(set(labels)) > 1
    names = rng.permutation(4)  # clusters renamed
    assert same(score(counts, names[labels]), value)
    assert same(score(counts, [f"cluster {i}" for i in labels]), value)
    assert score(permuted_within_rows(counts, rng), labels) == pytest.approx(value, abs=0, rel=0, nan_ok=True)
    order = rng.permutation(len(labels))
    assert same(score(counts[order], labels[order]), value)
    assert same(score(counts * rng.integers(1, 9, (len(counts), 1)), labels), value)  # only frequencies matter
    assert same(score(counts.tolist(), labels.tolist()), value)


@pytest.mark.parametrize("name", AGREEMENT_METRICS)
@relaxed
@given(problem=problems(), other=st.lists(st.integers(0, 3), min_size=8, max_size=8))
def test_agreement_metrics(name: str, problem: Problem, other: list[int]) -> None:
    score, (_, labels, rng) = AGREEMENT_METRICS[name], problem
    truth = np.array(other)[: len(labels)]
    value, (low, high) = score(truth, labels), BOUNDS[name]
    assert type(value) is float
    assert low - 1e-12 <= value <= high + 1e-12
    assert same(score(labels, truth), value)
    assert same(score(rng.permutation(4)[truth], rng.permutation(4)[labels]), value)
    order = rng.permutation(len(labels))
    assert same(score(truth[order], labels[order]), value)
    assert score(labels, rng.permutation(4)[labels]) == 1.0


# The Wasserstein distance


@relaxed
@given(problems())
def test_distances_are_optimal_transport(problem: Problem) -> None:
    counts, _, _ = problem
    p = counts / counts.sum(1, keepdims=True)
    got = wasserstein_distances(counts)
    assert np.array_equal(got, got.T)
    assert not got.diagonal().any()
    assert got.max() <= 1
    for i, j in itertools.combinations(range(len(p)), 2):
        squares = (p[i][:, None] - p[j]) ** 2  # [C, C]: what it costs to move one frequency onto another
        assert got[i, j] ** 2 == pytest.approx(squares[linear_sum_assignment(squares)].mean(), abs=1e-12)


@st.composite
def clusterings(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Frequencies [K, C] of three classes or more, and labels [K] of two or three clusters, not all of one client."""
    c, n, more = draw(st.integers(3, 4)), draw(st.integers(2, 3)), draw(st.lists(st.integers(0, 1), min_size=1, max_size=3))
    row = st.lists(st.integers(0, 6), min_size=c, max_size=c).filter(any)
    counts = np.array(draw(st.lists(row, min_size=n + len(more), max_size=n + len(more))))
    return counts / counts.sum(1, keepdims=True), np.array([*range(n), *more])


def w2(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """The least root mean square distance over all couplings of measures that put 1 / C on each frequency."""
    C = len(p)
    rows, columns = np.kron(np.eye(C), np.ones(C)), np.kron(np.ones(C), np.eye(C))  # [C, C * C] sums of a coupling
    plan = linprog(((p[:, None] - q) ** 2).ravel(), A_eq=np.concatenate([rows, columns]), b_eq=np.full(2 * C, 1 / C))
    return math.sqrt(plan.fun) if plan.fun > 1e-12 else 0.0  # no unequal frequencies are so near


few = settings(deadline=None, max_examples=40)


@few
@given(clusterings())
def test_silhouette_is_that_under_optimal_transport(clustered: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    p, labels = clustered
    widths: list[float] = []
    for k, own in enumerate(labels):
        mean = {y: [w2(p[k], p[j]) for j in range(len(p)) if labels[j] == y and j != k] for y in set(labels.tolist())}
        a, b = np.mean(mean[own] or 0.0), min(np.mean(mean[y]) for y in mean if y != own)
        widths.append(float((b - a) / max(a, b)) if mean[own] and max(a, b) > 0 else 0.0)
    assert metrics.wasserstein_adjusted_silhouette(p, labels) == pytest.approx(np.mean(widths), abs=1e-5)


@few
@given(clusterings())
def test_davies_bouldin_is_that_under_optimal_transport(clustered: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    """The centre of a cluster is the Wasserstein barycentre: on a line that is the mean of sorted frequencies."""
    p, labels = clustered
    clusters = range(labels.max() + 1)
    centres = [np.sort(p[labels == y], 1).mean(0) for y in clusters]
    wide = [np.mean([w2(row, centres[y]) for row in p[labels == y]]) for y in clusters]
    apart = {(i, j): w2(centres[i], centres[j]) for i in clusters for j in clusters if i != j}
    ours = metrics.wasserstein_adjusted_davies_bouldin(p, labels)
    if not any([*wide, *apart.values()]):
        assert math.isnan(ours)  # all clients are alike
    elif not all(apart.values()):
        assert ours == math.inf
    else:
        worst = [max((wide[i] + wide[j]) / apart[i, j] for j in clusters if j != i) for i in clusters]
        assert ours == pytest.approx(np.mean(worst), rel=1e-5)


def test_distances_by_hand() -> None:
    # Ranked (1, 0, 0, 0) and (1/4, ...): squared differences 9/16 and three times 1/16, mean 12/64.
    assert wasserstein_distances([[0, 7, 0, 0], [2, 2, 2, 2]])[0, 1] == pytest.approx(math.sqrt(12 / 64))
    assert wasserstein_distances([[0.1, 0.7, 0.2], [70.0, 10.0, 20.0]]).tolist() == [[0, 0], [0, 0]]  # frequencies will do
    assert wasserstein_distances([[5]]).tolist() == [[0]]


# Scores by hand: clients on a line, at top shares 0.9, 0.8 | 0.6, 0.5 of two classes

LINE = [[9, 1], [2, 8], [6, 4], [5, 5]]


def test_silhouette_by_hand() -> None:
    # Own distance 1 step of 0.1; to the other cluster 3.5, 2.5, 2.5, 3.5 steps.
    expected = (2 * (1 - 1 / 3.5) + 2 * (1 - 1 / 2.5)) / 4
    assert metrics.wasserstein_adjusted_silhouette(LINE, [0, 0, 1, 1]) == pytest.approx(expected)


def test_davies_bouldin_by_hand() -> None:
    # Each cluster is 0.5 steps wide on average, the centres are 3 apart.
    assert metrics.wasserstein_adjusted_davies_bouldin(LINE, [0, 0, 1, 1]) == pytest.approx((0.5 + 0.5) / 3)
    assert wasserstein_adjusted(davies_bouldin_score, LINE, [0, 0, 1, 1]) == pytest.approx(1 / 3)


def test_rand_by_hand() -> None:
    # Six pairs; only the pair (2, 3) is together in one and apart in the other.
    assert metrics.rand_index([0, 0, 1, 1], [5, 5, 7, 9]) == pytest.approx(5 / 6)
    # Hubert and Arabie: pairs together in both 1, expected 2 * 1 / 6, largest (2 + 1) / 2.
    assert metrics.adjusted_rand_index([0, 0, 1, 1], [5, 5, 7, 9]) == pytest.approx((1 - 1 / 3) / (3 / 2 - 1 / 3))


# Where the textbook formula has no answer

NAN = pytest.approx(math.nan, nan_ok=True)


@pytest.mark.parametrize(
    ("counts", "labels", "silhouette", "davies_bouldin"),
    [
        pytest.param(LINE, [3, 3, 3, 3], NAN, NAN, id="one cluster"),
        pytest.param([[1, 2]], [0], NAN, NAN, id="one client"),
        pytest.param(LINE, [0, 1, 2, 3], 0.0, NAN, id="every client alone"),
        pytest.param([[1, 0], [0, 2], [3, 0], [0, 4]], [0, 0, 1, 1], 0.0, NAN, id="all alike"),
        pytest.param(
            [[1, 2, 7], [0.7, 0.2, 0.1], [10, 70, 20], [0.1, 0.2, 0.7]], [0, 0, 1, 1], 0.0, NAN, id="alike up to rounding"
        ),
        pytest.param([[5]] * 3, [0, 0, 1], 0.0, NAN, id="one class"),
        pytest.param([[9, 1], [5, 5], [1, 9], [5, 5]], [0, 0, 1, 1], -0.5, math.inf, id="same centre"),
        pytest.param([[8, 0], [0, 3], [5, 5], [2, 2]], [0, 0, 1, 1], 1.0, 0.0, id="perfect"),
    ],
)
def test_defined_answers(counts: list[list[float]], labels: list[int], silhouette: object, davies_bouldin: object) -> None:
    assert metrics.wasserstein_adjusted_silhouette(counts, labels) == silhouette
    assert metrics.wasserstein_adjusted_davies_bouldin(counts, labels) == davies_bouldin


def test_the_silhouette_of_many_clients_is_that_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    top = np.random.default_rng(0).uniform(0.5, 1.0, 400)
    counts, labels = np.stack([top, 1 - top], 1), (top > 0.75).astype(int)
    whole = metrics.wasserstein_adjusted_silhouette(counts, labels)
    monkeypatch.setattr("fedgwc.metrics.clustering.MANY", 200)
    some = metrics.wasserstein_adjusted_silhouette(counts, labels)
    assert some == metrics.wasserstein_adjusted_silhouette(counts, labels)
    assert some != whole
    assert some == pytest.approx(whole, abs=0.05)


def test_any_score_has_no_answer_for_one_cluster() -> None:
    assert math.isnan(wasserstein_adjusted(davies_bouldin_score, LINE, [1] * 4))


@pytest.mark.parametrize("n", [1, 2, 40])  # scikit-learn warns about many small clusters from 20 on
def test_rand_of_trivial_clusterings(n: int) -> None:
    together, alone = [0] * n, list(range(n))
    for score in AGREEMENT_METRICS.values():
        assert score(together, together) == score(alone, alone) == 1.0
        assert score(together, alone) == (1.0 if n == 1 else 0.0)
