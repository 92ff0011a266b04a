"""Every partition: each row at most once, as many clients as asked, the same seed the same clients, nobody without a sample."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgwc.core.errors import InputError
from fedgwc.data import PARTITIONS, Federation, Group, Pool, federate
from fedgwc.data.partitions import check_partition, deal, takes
from fedgwc.data.partitions.classes import classes
from fedgwc.data.partitions.dirichlet import dirichlet
from fedgwc.data.partitions.dirichlet_per_class import dirichlet_per_class
from fedgwc.data.partitions.iid import iid
from fedgwc.data.partitions.label_quantity import label_quantity
from fedgwc.data.partitions.mixes import class_mixes, deal_mixes
from fedgwc.data.partitions.quantity import quantity, quantity_lognormal, shared_out
from fedgwc.data.partitions.same_shares import same_shares
from fedgwc.data.partitions.shards import shards

LABELS = np.repeat(np.arange(10), 60)
Settings = Callable[[str], dict[str, Any]]


@pytest.fixture
def needed(tmp_path: Path) -> Settings:
    """What a partition cannot do without: 14 clients, whose samples lie 14 apart."""
    path = tmp_path / "clients.json"
    path.write_text(json.dumps([list(range(k, 600, 14)) for k in range(14)]))
    return lambda name: {"path": str(path)} if name == "file" else {}


def pool(labels: np.ndarray = LABELS, **more: Any) -> Pool:
    """The last of every three samples is for testing."""
    rows = np.arange(len(labels))
    about = {"owners": rows % 14, "n_classes": int(labels.max()) + 1, **more}
    x = torch.arange(len(labels), dtype=torch.float32)[:, None]
    return Pool(x, torch.from_numpy(labels), rows[rows % 3 < 2], rows[rows % 3 == 2], **about)


def dealt(name: str, n_clients: int, size: int, seed: int, labels: np.ndarray = LABELS, **settings: Any) -> list[np.ndarray]:
    given = {"labels": labels, "rows": np.arange(len(labels)), "pool": pool(labels), "size": size, "seed": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return deal(name, settings, n_clients=n_clients, **given)


def counts(labels: np.ndarray, rows: list[np.ndarray]) -> np.ndarray:
    return np.array([np.bincount(labels[mine], minlength=labels.max() + 1) for mine in rows])


# All of them


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize(("n_clients", "size"), [(1, 40), (12, 30), (12, 50)])
def test_each_row_goes_to_one_client_at_most(name: str, n_clients: int, size: int, needed: Settings) -> None:
    rows = dealt(name, n_clients, size, 3, **needed(name))
    held = np.concatenate(rows)
    assert len(rows) == n_clients
    assert min(map(len, rows)) >= 1
    assert len(np.unique(held)) == len(held) <= n_clients * size or not takes(PARTITIONS[name], "size")
    assert held.min() >= 0
    assert held.max() < 600


@pytest.mark.parametrize("name", PARTITIONS)
def test_the_same_seed_deals_the_same(name: str, needed: Settings) -> None:
    first, again, other = (dealt(name, 12, 30, seed, **needed(name)) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    alike = all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    assert alike == (name == "file")


@pytest.mark.parametrize("name", sorted({*PARTITIONS} - {"file", "natural"}))  # these are about rows, not classes
def test_the_order_of_rows_does_not_matter(name: str) -> None:
    """How many samples of each class a client holds does not follow from where they stand."""
    order = np.random.default_rng(0).permutation(600)
    one, other = dealt(name, 12, 50, 3), dealt(name, 12, 50, 3, LABELS[order])
    assert [len(mine) for mine in one] == [len(mine) for mine in other]
    if name not in ("iid", "quantity", "quantity-lognormal", "shards", "dirichlet-per-class"):  # which draw rows first
        np.testing.assert_array_equal(counts(LABELS, one), counts(LABELS[order], other))


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_partition_makes_a_federation(name: str, needed: Settings) -> None:
    """Later groups get the samples that it leaves."""
    sizes = {"train_size": 20, "test_size": 8} if takes(PARTITIONS[name], "size") else {}
    group = Group(5, name, **sizes, **needed(name))
    got = federate(pool(), (group, Group(2), Group(3, "dirichlet", alpha=1)), 10, 4, seed=1)
    used = np.concatenate([got.train.flat, got.test.flat])
    assert len(np.unique(used)) == len(used)
    assert set(got.train.flat % 3) <= {0, 1}
    assert set(got.test.flat % 3) == {2}


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_partition_can_be_set_by_a_recipe(name: str) -> None:
    check_partition(name, PARTITIONS[name])


@pytest.mark.parametrize("name", PARTITIONS)
def test_no_partition_has_a_setting_of_groups_or_of_shifts(name: str) -> None:
    """A group's table holds them all, so that a name means one thing."""
    from fedgwc.data.groups import OWN
    from fedgwc.data.shifts import SHIFTS

    its = {key for key in PARTITIONS[name].__annotations__ if not takes(PARTITIONS[name], key)}
    assert not its & {*OWN, *SHIFTS}


def test_one_line_adds_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    def neighbours(rows: np.ndarray, n_clients: int, size: int, *, gap: int = 0) -> list[np.ndarray]:
        return [np.arange(size) + k * (size + gap) for k in range(n_clients)]

    monkeypatch.setitem(PARTITIONS, "neighbours", neighbours)
    got = federate(pool(), (Group(3, "neighbours", gap=2),), 2, 4, seed=0)
    assert [mine.tolist() for mine in (got.train[0], got.train[1])] == [[0, 1], [6, 7]]
    monkeypatch.setitem(PARTITIONS, "twice", lambda n_clients, size: [np.arange(2)] * n_clients)
    monkeypatch.setitem(PARTITIONS, "few", lambda n_clients, size: [np.arange(2)])
    monkeypatch.setitem(PARTITIONS, "none", lambda n_clients, size: [np.arange(2), np.arange(0)])
    for name, message in (
        ("twice", "deals a sample to two clients"),
        ("few", "dealt to 1 clients and was asked for 2"),
        ("none", "leaves client 1 of its group without a sample"),
    ):
        with pytest.raises(InputError, match=message):
            dealt(name, 2, 2, 0)


# Dirichlet for each client


def test_alpha_zero_gives_one_class_each_and_uses_classes_evenly() -> None:
    rows = dirichlet(LABELS, 20, 30, seed=1, alpha=0)
    held = [np.unique(LABELS[mine]) for mine in rows]
    assert all(len(c) == 1 for c in held)
    assert np.bincount(np.concatenate(held)).tolist() == [2] * 10


def test_concentration_is_alpha_over_classes() -> None:
    """The variance of a Dirichlet share is p (1 - p) / (alpha + 1) with p = 1/C, whatever C: Hsu's alpha, not alpha per class."""
    mixes = class_mixes(4000, 10, 3.0, np.random.default_rng(0))
    assert mixes.var() == pytest.approx(0.1 * 0.9 / 4, rel=0.05)
    assert mixes.mean() == pytest.approx(0.1)


def test_few_classes_at_small_alpha() -> None:
    """At alpha 0.5 over 100 classes a client holds a handful of classes, not 50."""
    labels = np.repeat(np.arange(100), 500)
    held = (counts(labels, dirichlet(labels, 100, 300, seed=0, alpha=0.5)) > 0).sum(1)
    assert 2 <= np.median(held) <= 8


def test_tiny_alpha_does_not_underflow() -> None:
    mixes = class_mixes(5, 10, 1e-6, np.random.default_rng(0))
    assert np.isfinite(mixes).all()
    np.testing.assert_allclose(mixes.sum(1), 1)


def test_exhausted_classes_leave_the_mix_and_are_reported() -> None:
    """Three one-class clients over two classes: the third finds its class empty and takes what remains."""
    labels, mixes = np.array([0] * 6 + [1] * 6), np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
    with pytest.warns(UserWarning, match="1 of 3 clients ran out"):
        rows = deal_mixes(labels, mixes, np.array([4, 4, 4]), np.random.default_rng(0))
    assert counts(labels, rows).tolist() == [[4, 0], [2, 2], [0, 4]]


@given(alpha=st.floats(0, 1000), n_clients=st.integers(1, 20), size=st.integers(1, 30), seed=st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_dirichlet_always_deals_what_was_asked(alpha: float, n_clients: int, size: int, seed: int) -> None:
    rows = dealt("dirichlet", n_clients, size, seed, alpha=alpha)
    assert [len(mine) for mine in rows] == [size] * n_clients


# Dirichlet for each class


@pytest.mark.parametrize("self_balancing", [True, False])
def test_a_class_is_split_over_all_clients_and_all_samples_are_used(self_balancing: bool) -> None:
    rows = dirichlet_per_class(LABELS, 12, 50, 0, alpha=0.3, min_size=3, self_balancing=self_balancing)
    got = counts(LABELS, rows)
    assert got.sum(0).tolist() == [60] * 10
    assert 3 <= got.sum(1).min() < got.sum(1).max()


def test_a_client_that_has_enough_gets_no_further_class() -> None:
    """Of two classes of 10, a client with 10 or more of the first gets nothing of the second."""
    labels = np.repeat([0, 1], 10)
    rows = [dirichlet_per_class(labels, 2, 10, seed, alpha=0.05) for seed in range(20)]
    got = np.array([counts(labels, each) for each in rows])
    full = got[:, :, 0] >= 10
    assert full.any()
    assert not got[:, :, 1][full].any()


def test_a_large_alpha_gives_everybody_the_same() -> None:
    got = counts(LABELS, dirichlet_per_class(LABELS, 6, 100, 0, alpha=1e6))
    assert abs(got - 10).max() <= 1


def test_a_smallest_size_that_no_draw_reaches_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"client \d+ of 50 would have \d+ samples in the best .* min_size is 12; raise alpha"):
        dirichlet_per_class(LABELS, 50, 12, 0, alpha=0.01, min_size=12)


# Shards and classes


def test_shards_hold_neighbouring_classes() -> None:
    rows = shards(LABELS, 10, 60, 0, shards=1)
    assert sorted(np.unique(LABELS[mine]).tolist() for mine in rows) == [[c] for c in range(10)]
    assert counts(LABELS, shards(LABELS, 12, 50, 0, shards=2)).astype(bool).sum(1).max() <= 4


def test_each_client_has_its_number_of_classes_in_equal_parts() -> None:
    got = counts(LABELS, classes(LABELS, 10, 30, 0, classes=3))
    assert all(sorted(mine[mine > 0]) == [10, 10, 10] for mine in got)
    assert (got > 0).sum(0).tolist() == [3] * 10  # each class goes to as many clients


def test_a_remainder_goes_to_single_classes() -> None:
    got = counts(LABELS, classes(LABELS, 5, 11, 0, classes=2))
    assert [sorted(mine[mine > 0]) for mine in got] == [[5, 6]] * 5


def test_a_scarce_class_is_shared_evenly_and_sizes_differ() -> None:
    """Of class 0 there are 4 samples for two clients that would have 6 each of either class."""
    labels = np.array([0] * 4 + [1] * 30)
    assert counts(labels, classes(labels, 2, 12, 0, classes=2)).tolist() == [[2, 6], [2, 6]]


def test_a_client_whose_classes_are_used_up_is_named() -> None:
    labels = np.array([0] * 1 + [1] * 30)
    with pytest.raises(InputError, match=r"client \d finds its classes used up \(1 such clients\); take fewer clients"):
        classes(labels, 4, 4, 0, classes=1)


# Sizes


def test_weights_become_sizes() -> None:
    assert shared_out(np.array([1.0, 1.0, 2.0]), 4, 1).tolist() == [3, 3, 6]  # 12 in all; 9 shared out as 2.25, 2.25, 4.5
    assert shared_out(np.array([0.0, 1.0]), 5, 2).tolist() == [2, 8]


@pytest.mark.parametrize("skew", [quantity, quantity_lognormal])
def test_sizes_differ_and_their_mean_is_what_was_asked(skew: Any) -> None:
    rows = skew(LABELS, 12, 50, 0, min_size=5)
    sizes = [len(mine) for mine in rows]
    assert sum(sizes) == 600
    assert 5 <= min(sizes) < 50 < max(sizes)


def test_sizes_can_be_nearly_or_exactly_equal() -> None:
    assert {len(mine) for mine in quantity_lognormal(LABELS, 12, 50, 0, sigma=0)} == {50}
    assert all(abs(len(mine) - 50) <= 1 for mine in quantity(LABELS, 12, 50, 0, beta=1e9))


def test_test_sets_of_unequal_clients_are_random_draws_of_equal_size() -> None:
    got = federate(pool(), (Group(6, "quantity", beta=0.3),), 40, 30, seed=0)
    assert set(got.test.sizes) == {30}
    assert len(set(got.train.sizes)) > 1


def test_mixes_and_sizes_are_drawn_independently() -> None:
    """Two classes for as many clients; who has how much does not follow from which it has."""
    got = counts(LABELS, label_quantity(LABELS, 10, 6, 1, alpha=0, beta=1))
    assert (got > 0).sum(1).tolist() == [1] * 10
    assert got.sum() == 60
    assert len(set(got.sum(1))) > 2


def test_nobody_has_less_than_the_smallest_size_or_more_than_there_is() -> None:
    with pytest.raises(InputError, match=r"min_size must be in 1\.\.30, the mean size of a client, got 31"):
        quantity(LABELS, 12, 30, 0, min_size=31)
    with pytest.raises(InputError, match="beta must be > 0 and finite, got 0; 1000 is nearly equal sizes"):
        quantity(LABELS, 12, 30, 0, beta=0)
    with pytest.raises(InputError, match="sigma must be >= 0 and finite, got -1; 0 is equal sizes"):
        quantity_lognormal(LABELS, 12, 30, 0, sigma=-1)


# Clients that come with the data


def natural(groups: tuple[Group, ...], **more: Any) -> Federation:
    return federate(pool(**more), groups, 5, 3, seed=0)


def test_natural_clients_have_all_samples_of_an_owner() -> None:
    owners = np.arange(600) // 100
    got = natural((Group(4, "natural"),), owners=owners)
    for k in range(4):
        assert len({*owners[got.train[k]], *owners[got.test[k]]}) == 1
        assert len(got.train[k]) + len(got.test[k]) == 100
    assert got.notes == (
        "the clients of group 0 are as large as partition natural makes them, whatever train_size and test_size are",
    )


def test_groups_of_natural_clients_share_the_owners() -> None:
    got = natural((Group(3, "natural"), Group(3, "natural", noise=1.0)), owners=np.arange(600) // 100)
    assert len(got.train.flat) + len(got.test.flat) == 600
    with pytest.raises(InputError, match=r"4 clients were asked for, and 3 of 3 owners have samples .* set clients to 3 at most"):
        natural((Group(3, "natural"), Group(4, "natural")), owners=np.arange(600) // 100)


def test_a_column_says_whose_samples_are(tmp_path: Path) -> None:
    path = tmp_path / "writers.npz"
    group = (Group(2, "natural", column=str(path)),)
    np.savez(path, client=np.array(["ann", "bob"])[np.arange(600) % 2])
    assert sorted(natural(group).train[0] % 2) == [0] * 200
    np.savez(path, client=np.arange(5))
    with pytest.raises(InputError, match=r"`client` of shape \(5,\); it needs one id for each of the 600 samples"):
        natural(group)
    np.savez(path, writer=np.arange(600))
    with pytest.raises(InputError, match="has no `client`"):
        natural(group)
    path.unlink()
    with pytest.raises(InputError, match=r"there is no .*writers\.npz"):
        natural(group)
    with pytest.raises(InputError, match=r"does not say whose a sample is; give column=FILE\.npz"):
        natural((Group(2, "natural"),), owners=None)


def listed(path: Path, content: Any, n_clients: int = 2) -> Federation:
    path.write_text(json.dumps(content))
    return federate(pool(), (Group(n_clients, "file", path=str(path)),), 5, 3, seed=0)


def test_a_file_lists_the_rows_of_each_client(tmp_path: Path) -> None:
    for content in ([[0, 1, 2], [3, 5], [6, 8]], {"ann": [0, 1, 2], "bob": [3, 5]}):
        got = listed(tmp_path / "p.json", content)
        assert [got.train[k].tolist() for k in (0, 1)] == [[0, 1], [3]]
        assert [got.test[k].tolist() for k in (0, 1)] == [[2], [5]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([[0, 2]], "lists 1 clients, and 2 were asked for; set clients to 1 at most"),
        ([[0, 2], [3, 600]], r"client 1: there is no row 600; pool has the rows 0\.\.599"),
        ([[0, 2], [-1, 2]], "client 1: there is no row -1"),
        ([[0, 2], [3, 2]], "deals a sample to two clients"),
        ([[0, 2], [3, 4]], "gives client 1 of group 0 no test sample"),
        ([[0, 2], [5]], "gives client 1 of group 0 no training sample"),
        ([[0, 2], []], "leaves client 1 of its group without a sample"),
        ([[0, 2], ["a"]], "must hold a list of row numbers for each client"),
        ([[0, 2], [True]], "must hold a list of row numbers for each client"),
        (3, "must hold a list of row numbers for each client"),
        ({"0": {"train": {"x": [], "y": []}}}, "goes by file names"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        listed(tmp_path / "p.json", content)


def test_a_group_gets_no_row_that_another_has(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text("[[0, 2], [3, 5]]")
    with pytest.raises(InputError, match="client 0: row 0 belongs to a group that was dealt out before"):
        federate(pool(), (Group(2, "file", path=str(path)), Group(2, "file", path=str(path))), 5, 3, seed=0)
    with pytest.raises(InputError, match="there is no partition file"):
        federate(pool(), (Group(2, "file", path=str(tmp_path / "other.json")),), 5, 3, seed=0)


# Test sets


def test_test_sets_have_the_shares_of_training_sets() -> None:
    """Rounded to whole samples, though every sample is used: 2.5, 1.5, 0 and 0.5, 1.5, 2 of which there are 3, 3 and 2."""
    labels = np.repeat(np.arange(3), (3, 3, 2))
    rows = same_shares(labels, [[50, 30, 0], [10, 30, 40]], [4, 4], seed=0)
    got = counts(labels, rows)
    assert sorted(np.concatenate(rows).tolist()) == list(range(8))
    assert got[:, 2].tolist() == [0, 2]
    assert got[0].tolist() in ([2, 2, 0], [3, 1, 0])


def test_a_large_remainder_is_rounded_up_first() -> None:
    labels = np.repeat(np.arange(3), 9)
    [rows] = same_shares(labels, [[16, 9, 5]], [3], seed=0)  # 1.6, 0.9, 0.5 of three samples
    assert np.bincount(labels[rows], minlength=3).tolist() == [2, 1, 0]


def test_who_cannot_have_its_classes_takes_others_and_it_is_said() -> None:
    labels = np.array([0, 1, 1, 1, 2, 2])
    with pytest.warns(UserWarning, match="1 of 2 clients ran out of their own classes"):
        rows = same_shares(labels, [[5, 0, 0], [5, 5, 0]], [2, 3], seed=0)
    got = counts(labels, rows)
    assert got[:, 0].sum() == 1
    assert got.sum(1).tolist() == [2, 3]


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 9), st.integers(0, 99))
def test_shares_are_met_within_a_sample(n_clients: int, n_classes: int, size: int, seed: int) -> None:
    """Wherever there is enough of every class, and each sample goes to one client."""
    rng = np.random.default_rng(seed)
    wanted = rng.integers(0, 30, (n_clients, n_classes))
    wanted[:, 0] += 1
    labels = np.repeat(np.arange(n_classes), n_clients * size)
    rows = same_shares(labels, wanted, np.full(n_clients, size), seed)
    assert len(set(np.concatenate(rows).tolist())) == n_clients * size
    assert (abs(counts(labels, rows) - wanted / wanted.sum(1, keepdims=True) * size) < 1).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dirichlet(LABELS, 5, 10, 0, alpha=-1), "alpha must be >= 0, got -1; 0 gives one class per client"),
        (lambda: dirichlet(LABELS, 5, 10, 0, alpha=float("nan")), "alpha must be >= 0"),
        (lambda: dirichlet(LABELS, 100, 10, 0), "need 1000, but there are 600; use at most 6 each"),
        (lambda: dirichlet([], 1, 1, 0), "non-empty"),
        (lambda: dirichlet([0.5, 1], 1, 1, 0), "integers"),
        (lambda: dirichlet(LABELS, 0, 1, 0), "at least one client"),
        (lambda: dirichlet(LABELS, 4, 3.5, 0), "must be whole numbers, got 4, 3.5"),  # type: ignore[arg-type]
        (lambda: dirichlet(LABELS, 4.0, 3, 0), "must be whole numbers, got 4.0, 3"),  # type: ignore[arg-type]
        (lambda: dirichlet(LABELS, 4, 3, -1), "seed must be a whole number >= 0, got -1"),
        (lambda: iid(LABELS, 4, 3, "a"), "seed must be a whole number >= 0, got 'a'"),  # type: ignore[arg-type]
        (lambda: dirichlet(LABELS, 4, 3, 0, alpha=None), "alpha must be >= 0, got None"),  # type: ignore[arg-type]
        (lambda: shards(LABELS, 2, 30, 0, shards=7), "choose a divisor"),
        (lambda: classes(LABELS, 2, 30, 0, classes=11), r"classes must be in 1\.\.10, .* got 11"),
        (lambda: dirichlet_per_class(LABELS, 2, 30, 0, alpha=0), "alpha must be > 0"),
        (lambda: same_shares(LABELS, [[1, 2]], [5], 0), "counts must be"),
        (lambda: same_shares(LABELS, np.zeros((1, 10)), [5], 0), "samples in counts"),
        (lambda: same_shares(LABELS, np.ones((1, 10)), [5, 5], 0), "every client needs a size"),
        (lambda: same_shares(LABELS, np.ones((2, 10)), [5, 600], 0), "need 605, but there are 600"),
    ],
)
def test_impossible_requests(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
