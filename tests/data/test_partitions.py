"""Every way of dealing: each row at most once, equal sizes, the same seed the same clients."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgwc.core.errors import InputError
from fedgwc.data.partitions.draws import alike, dirichlet, iid, shards

LABELS = np.repeat(np.arange(10), 60)


def deal(kind: str, seed: int) -> list[np.ndarray]:
    if kind == "iid":
        return iid(len(LABELS), 12, 30, seed)
    if kind == "shards":
        return shards(LABELS, 12, 2, 30, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dirichlet(LABELS, 12, float(kind), 30, seed)[0]


@pytest.mark.parametrize("kind", ["iid", "shards", "0", "0.05", "0.5", "100"])
def test_each_row_is_used_at_most_once(kind: str) -> None:
    rows = deal(kind, 3)
    assert [len(r) for r in rows] == [30] * 12
    assert len(np.unique(np.concatenate(rows))) == 360
    assert all(np.array_equal(a, b) for a, b in zip(rows, deal(kind, 3), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(rows, deal(kind, 4), strict=True))


def test_alpha_zero_gives_one_class_each_and_uses_classes_evenly() -> None:
    rows, mix = dirichlet(LABELS, 20, 0, 30, seed=1)
    classes = [np.unique(LABELS[r]) for r in rows]
    assert all(len(c) == 1 for c in classes)
    assert np.bincount(np.concatenate(classes)).tolist() == [2] * 10
    assert mix.sum(1).tolist() == [1.0] * 20


def test_concentration_is_alpha_over_classes() -> None:
    """The variance of a Dirichlet share is p (1 - p) / (alpha + 1) with p = 1/C, whatever C: Hsu's alpha, not alpha per class."""
    _, mix = dirichlet(np.repeat(np.arange(10), 5000), 4000, 3.0, 10, seed=0)
    assert mix.var() == pytest.approx(0.1 * 0.9 / 4, rel=0.05)
    assert mix.mean() == pytest.approx(0.1)


def test_few_classes_at_small_alpha() -> None:
    """At alpha 0.5 over 100 classes a client holds a handful of classes, not 50."""
    labels = np.repeat(np.arange(100), 500)
    rows, _ = dirichlet(labels, 100, 0.5, 300, seed=0)
    held = [len(np.unique(labels[r])) for r in rows]
    assert 2 <= np.median(held) <= 8


def test_tiny_alpha_does_not_underflow() -> None:
    _, mix = dirichlet(LABELS, 5, 1e-6, 30, seed=0)
    assert np.isfinite(mix).all()
    np.testing.assert_allclose(mix.sum(1), 1)


def test_test_sets_follow_the_training_mix() -> None:
    labels = np.repeat(np.arange(10), 2000)
    train, mix = dirichlet(labels, 10, 1.0, 500, seed=0)
    test, same = dirichlet(labels, 10, 1.0, 500, seed=9, mix=mix)
    assert same is mix or np.array_equal(same, mix)
    for a, b in zip(train, test, strict=True):
        share = [np.bincount(labels[r], minlength=10) / 500 for r in (a, b)]
        assert np.abs(share[0] - share[1]).max() < 0.1


def test_test_sets_have_the_shares_of_training_sets() -> None:
    """Rounded to whole samples, though every sample is used: 2.5, 1.5, 0 and 0.5, 1.5, 2 of which there are 3, 3 and 2."""
    labels = np.repeat(np.arange(3), (3, 3, 2))
    rows = alike(labels, [[50, 30, 0], [10, 30, 40]], [4, 4], seed=0)
    counts = np.array([np.bincount(labels[r], minlength=3) for r in rows])
    assert sorted(np.concatenate(rows).tolist()) == list(range(8))
    assert counts[:, 2].tolist() == [0, 2]
    assert counts[0].tolist() in ([2, 2, 0], [3, 1, 0])


def test_a_large_remainder_is_rounded_up_first() -> None:
    labels = np.repeat(np.arange(3), 9)
    [rows] = alike(labels, [[16, 9, 5]], [3], seed=0)  # 1.6, 0.9, 0.5 of three samples
    assert np.bincount(labels[rows], minlength=3).tolist() == [2, 1, 0]


def test_who_cannot_have_its_classes_takes_others_and_it_is_said() -> None:
    labels = np.array([0, 1, 1, 1, 2, 2])
    with pytest.warns(UserWarning, match="1 of 2 clients ran out of their own classes"):
        rows = alike(labels, [[5, 0, 0], [5, 5, 0]], [2, 3], seed=0)
    counts = np.array([np.bincount(labels[r], minlength=3) for r in rows])
    assert counts[:, 0].sum() == 1
    assert counts.sum(1).tolist() == [2, 3]


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 9), st.integers(0, 99))
def test_what_is_dealt_alike_is_within_a_sample_of_its_share(n_clients: int, n_classes: int, size: int, seed: int) -> None:
    """Wherever there is enough of every class, and each sample goes to one client."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 30, (n_clients, n_classes))
    counts[:, 0] += 1
    labels = np.repeat(np.arange(n_classes), n_clients * size)
    rows = alike(labels, counts, np.full(n_clients, size), seed)
    assert len(set(np.concatenate(rows).tolist())) == n_clients * size
    got = np.array([np.bincount(labels[r], minlength=n_classes) for r in rows])
    assert (abs(got - counts / counts.sum(1, keepdims=True) * size) < 1).all()


def test_exhausted_classes_leave_the_mix_and_are_reported() -> None:
    """Three one-class clients over two classes: the third finds its class empty and takes what remains."""
    labels = np.array([0] * 6 + [1] * 6)
    mix = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
    with pytest.warns(UserWarning, match="1 of 3 clients ran out"):
        rows, _ = dirichlet(labels, 3, 0, 4, seed=0, mix=mix)
    assert [np.bincount(labels[r], minlength=2).tolist() for r in rows] == [[4, 0], [2, 2], [0, 4]]


@given(alpha=st.floats(0, 1000), n_clients=st.integers(1, 20), size=st.integers(1, 30), seed=st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_dirichlet_always_deals_what_was_asked(alpha: float, n_clients: int, size: int, seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows, mix = dirichlet(LABELS, n_clients, alpha, size, seed)
    assert [len(r) for r in rows] == [size] * n_clients
    assert len(np.unique(np.concatenate(rows))) == n_clients * size
    np.testing.assert_allclose(mix.sum(1), 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dirichlet(LABELS, 5, -1, 10, 0), "alpha must be >= 0, got -1; 0 gives one class per client"),
        (lambda: dirichlet(LABELS, 5, float("nan"), 10, 0), "alpha must be >= 0"),
        (lambda: dirichlet(LABELS, 100, 1, 10, 0), "need 1000, but there are 600; use at most 6 each"),
        (lambda: dirichlet([], 1, 1, 1, 0), "non-empty"),
        (lambda: dirichlet([0.5, 1], 1, 1, 1, 0), "integers"),
        (lambda: dirichlet(LABELS, 0, 1, 1, 0), "at least one client"),
        (lambda: dirichlet(LABELS, 2, 1, 1, 0, mix=np.ones((3, 10))), "mix must be"),
        (lambda: dirichlet(LABELS, 4, 0.5, 3.5, 0), "must be whole numbers, got 4, 3.5"),
        (lambda: dirichlet(LABELS, 4.0, 0.5, 3, 0), "must be whole numbers, got 4.0, 3"),
        (lambda: dirichlet(LABELS, 4, 0.5, 3, -1), "seed must be a whole number >= 0, got -1"),
        (lambda: iid(60, 4, 3, "a"), "seed must be a whole number >= 0, got 'a'"),
        (lambda: dirichlet(LABELS, 4, None, 3, 0), "alpha must be >= 0, got None"),
        (lambda: shards(LABELS, 2, 7, 30, 0), "choose a divisor"),
        (lambda: alike(LABELS, [[1, 2]], [5], 0), "counts must be"),
        (lambda: alike(LABELS, np.zeros((1, 10)), [5], 0), "samples in counts"),
        (lambda: alike(LABELS, np.ones((1, 10)), [5, 5], 0), "every client needs a size"),
        (lambda: alike(LABELS, np.ones((2, 10)), [5, 600], 0), "need 605, but there are 600"),
    ],
)
def test_impossible_requests(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
