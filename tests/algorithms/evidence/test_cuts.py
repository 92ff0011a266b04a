"""The statistics of cuts: unbiased, seldom wrong without groups, and blind to order, names, scale and turns of the sketch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import ortho_group

from fedgwc.algorithms.evidence.cuts import Evidence, axes, best_cut, gram, noise, tree_of_cuts
from fedgwc.algorithms.evidence.views import less_common
from fedgwc.core.types import Floats, Ids
from fedgwc.metrics import adjusted_rand_index

WIDTH = 40


def seen(places: Floats, rng: np.random.Generator, visits: int = 8, spread: float = 1.0) -> Evidence:
    """Halves of so many visits each, with normal noise."""
    halves = places + spread * rng.standard_normal((2, *places.shape)) / np.sqrt(visits)
    return Evidence(halves, np.full((2, len(places)), float(visits)))


def clumps(sizes: tuple[int, ...], apart: float, rng: np.random.Generator) -> tuple[Floats, Ids]:
    truth = np.repeat(np.arange(len(sizes)), sizes)
    middle = rng.standard_normal((len(sizes), WIDTH))
    middle *= apart / np.linalg.norm(middle, axis=1, keepdims=True)
    return middle[truth] + 0.1 * rng.standard_normal((len(truth), WIDTH)), truth


def test_the_gram_matrix_by_hand() -> None:
    """Two clients at -1 and 1 by one half, at -2 and 2 by the other: products of 2, of either sign."""
    halves = np.array([[[-1.0], [1.0]], [[-2.0], [2.0]]])
    assert gram(*halves).tolist() == [[2.0, -2.0], [-2.0, 2.0]]
    assert axes(gram(*halves))[0].tolist() == [4.0, 0.0]


@pytest.mark.parametrize("cohort", [3, 10])
def test_the_gram_matrix_is_unbiased_whatever_the_cohort(cohort: int) -> None:
    """Clients' own means about their common mean, from cohorts drawn anew in every round; the diagonal too."""
    rng, n, rounds, repeats = np.random.default_rng(0), 10, 12, 400
    places = rng.standard_normal((n, 3))
    estimates = []
    for _ in range(repeats):
        sums, visits = np.zeros((2, n, 3)), np.zeros((2, n))
        for number in range(rounds * 10 // cohort):
            who = rng.permutation(n)[:cohort]
            alone = less_common(places[who] + 0.5 * rng.standard_normal((cohort, 3)), np.zeros(cohort, np.int64))
            sums[number % 2, who] += alone
            visits[number % 2, who] += 1
        if visits.min():
            estimates.append((sums[0] / visits[0][:, None]) @ (sums[1] / visits[1][:, None]).T)
    centred = (places - places.mean(0)) * n / (n - 1)  # what a client shows is its place less that of all others
    true = centred @ centred.T
    error = np.std(estimates, axis=0) / np.sqrt(len(estimates))
    assert len(estimates) > repeats / 2
    assert np.abs((np.mean(estimates, axis=0) - true) / error).max() < 4.5  # of 100 entries


def test_noise_is_measured_by_the_difference_of_halves() -> None:
    rng = np.random.default_rng(1)
    variance, directions = noise(seen(10 * rng.standard_normal((200, WIDTH)), rng, visits=5, spread=2.0))
    assert variance == pytest.approx(4.0 * WIDTH, rel=0.05)
    assert directions == pytest.approx(WIDTH, abs=3)


CLOUDS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "no differences": lambda rng, n: np.zeros((n, WIDTH)),
    "one axis": lambda rng, n: rng.standard_normal((n, 1)) * np.eye(1, WIDTH),
    "many axes": lambda rng, n: rng.standard_normal((n, WIDTH)) / np.arange(1, WIDTH + 1),
    "label mixes, Dirichlet 1": lambda rng, n: np.pad(3 * rng.dirichlet(np.ones(10), n), ((0, 0), (0, WIDTH - 10))),
    "label mixes, Dirichlet 10": lambda rng, n: np.pad(3 * rng.dirichlet(np.full(10, 10.0), n), ((0, 0), (0, WIDTH - 10))),
}


@pytest.mark.parametrize("kind", CLOUDS)
def test_clouds_are_seldom_cut(kind: str) -> None:
    """A chance below 5 % comes up in about 5 % of clouds; below 1 in 1,000, as a division without a jury needs, never."""
    chances = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = (6, 12, 30)[seed % 3]
        cut = best_cut(seen(CLOUDS[kind](rng, n), rng), 3, rng)
        chances.append(1.0 if cut is None else cut.chance)
    assert np.mean(np.array(chances) <= 0.05) <= 0.175  # 7 of 40: at 5 % that is 1 in 300
    assert min(chances) > 1e-3


@pytest.mark.parametrize("sizes", [(3, 3), (6, 6), (4, 4, 4), (25, 5), (6, 6, 6, 6, 6)])
def test_groups_are_found_the_sooner_the_further_apart(sizes: tuple[int, ...]) -> None:
    exact = []
    for apart in (0.3, 1.0, 5.0):
        found = 0
        for seed in range(6):
            rng = np.random.default_rng(seed)
            places, truth = clumps(sizes, apart, rng)
            found += bool(adjusted_rand_index(truth, tree_of_cuts(seen(places, rng), 3, 0.05, rng)[0]) == 1)
        exact.append(found)
    assert exact == sorted(exact)
    assert exact[-1] >= 5


def test_order_scale_and_turns_of_the_sketch_do_not_matter() -> None:
    rng = np.random.default_rng(3)
    places, _ = clumps((5, 7), 2.0, rng)
    known = seen(places, rng)
    turn, order = ortho_group.rvs(WIDTH, random_state=0), rng.permutation(12)
    labels, chances = tree_of_cuts(known, 3, 0.05, np.random.default_rng(0))
    assert labels.max() == 1
    for other, back in (
        (Evidence(known.means @ turn, known.visits), np.arange(12)),
        (Evidence(1000 * known.means, known.visits), np.arange(12)),
        (known.of(order), order),
    ):
        found, again = tree_of_cuts(other, 3, 0.05, np.random.default_rng(0))
        assert adjusted_rand_index(labels[back], found) == 1
        np.testing.assert_allclose(again, chances, rtol=1e-3)


def test_parts_are_numbered_by_their_first_client() -> None:
    rng = np.random.default_rng(4)
    places, truth = clumps((4, 4, 4), 5.0, rng)
    order = np.array([11, 0, 4, *np.setdiff1d(np.arange(12), [11, 0, 4])])
    labels, _ = tree_of_cuts(seen(places[order], rng), 3, 0.05, rng)
    assert labels[:3].tolist() == [0, 1, 2]
    assert adjusted_rand_index(truth[order], labels) == 1
