"""Federations from groups, and from arrays of one's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedgwc.core.errors import InputError
from fedgwc.core.settings import convert, plain
from fedgwc.data import Federation, Group, Pool, Rows, digits, federate, from_arrays
from fedgwc.data.merge import merge


def rows_of(*clients: list[int]) -> Rows:
    return Rows.of([np.array(rows, np.int64) for rows in clients])


def test_the_default_federation() -> None:
    f = digits(seed=0)
    assert (f.n_clients, f.n_classes, f.shape) == (100, 10, (1, 8, 8))
    assert np.bincount(f.known_groups).tolist() == [85, 15]
    used = np.concatenate([f.train.flat, f.test.flat])
    assert len(np.unique(used)) == len(used) == 100 * 17


def test_relabelled_clients_have_the_same_images_and_shifted_labels() -> None:
    plain = digits(seed=0, groups=(Group(85), Group(15)))
    coded = digits(seed=0)
    assert torch.equal(plain.x[:], coded.x[:])
    for split in ("train", "test"):
        for k in (0, 99):
            rows = plain.rows(split)[k]
            np.testing.assert_array_equal(rows, coded.rows(split)[k])
            shift = 1 if k == 99 else 0
            assert torch.equal((plain.y[rows] + shift) % 10, coded.y[rows])


def test_a_mixture_of_partitions() -> None:
    f = digits(
        seed=1,
        groups=(Group(10, "dirichlet", alpha=1000), Group(5, "dirichlet", alpha=0), Group(5, "shards", shards=2)),
        train_size=20,
        test_size=4,
    )
    held = (f.class_counts("train") > 0).sum(1)
    assert held[:10].min() >= 6
    assert set(held[10:15]) == {1}
    assert held[15:].max() <= 4
    # a client is tested on the classes it trains on
    train, test = f.class_counts("train") > 0, f.class_counts("test") > 0
    assert (test[10:15] <= train[10:15]).all()


def test_noise_comes_after_normalisation_and_reaches_only_its_group() -> None:
    groups = (Group(5), Group(5, noise=0.5))
    clean, noised = digits(seed=0, groups=(Group(5), Group(5))), digits(seed=0, groups=groups)
    difference = noised.x[:] - clean.x[:]
    mine = torch.from_numpy(np.concatenate([noised.train[k] for k in range(5, 10)]))
    other = torch.from_numpy(np.concatenate([noised.train[k] for k in range(5)]))
    assert difference[mine].std().item() == pytest.approx(0.5, rel=0.1)
    assert not difference[other].any()


def test_noise_counts_in_deviations_and_black_stays_black() -> None:
    x = torch.zeros(400, 2, 8, 8, dtype=torch.uint8)
    y = torch.arange(400) % 2
    pool = Pool(x, y, np.arange(200), np.arange(200, 400), 2, mean=(0.5, 0.4), std=(0.5, 0.1))
    f = federate(pool, (Group(1, noise=2.0), Group(1)), train_size=100, test_size=50, seed=0)
    assert f.mean == (0.5, 0.4)  # so a cropped border, pixel 0, is black to the model and not grey
    noised = f.x[torch.from_numpy(f.train[0])]
    assert noised.std((0, 2, 3)).tolist() == pytest.approx([2 * 0.5, 2 * 0.1], rel=0.03)
    assert not f.x[torch.from_numpy(f.train[1])].any()


def test_from_arrays_holds_out_a_share_of_each_client() -> None:
    client = np.repeat(["b", "a", "c"], [10, 5, 2])
    f = from_arrays(np.arange(17.0)[:, None], np.arange(17) % 3, client, test_share=0.2)
    assert f.train.sizes.tolist() == [4, 8, 1]  # in the order a, b, c
    assert f.test.sizes.tolist() == [1, 2, 1]
    assert np.sort(np.concatenate([f.train[0], f.test[0]])).tolist() == list(range(10, 15))


def test_from_arrays_takes_a_test_column() -> None:
    f = from_arrays(np.zeros((4, 1)), np.array([0, 1, 0, 1]), [0, 0, 1, 1], is_test=np.array([False, True, False, True]))
    assert (f.train.flat.tolist(), f.test.flat.tolist()) == ([0, 2], [1, 3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((3, 1))}, "one entry per sample"),
        ({"client": [0, 0, 1]}, "one entry per sample"),
        ({"client": [0, 0, 0, 1]}, "needs at least 2"),
        ({"x": np.array([[0.0], [np.nan], [0], [0]])}, "NaN or infinite"),
        ({"y": [0, 1, 2, -1]}, "labels must be in"),
        ({"n_classes": 2, "y": [0, 1, 2, 0]}, "labels must be in 0..1"),
    ],
)
def test_bad_arrays(change: dict[str, object], message: str) -> None:
    good = {"x": np.zeros((4, 1)), "y": [0, 1, 0, 1], "client": [0, 0, 1, 1]}
    with pytest.raises(InputError, match=message):
        from_arrays(**{**good, **change})  # type: ignore[arg-type]


def test_an_empty_client_is_named() -> None:
    with pytest.raises(InputError, match="client 1 has no test sample"):
        Federation(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64), rows_of([0], [1]), rows_of([2], []), 1)


# Groups


def test_a_group_is_what_its_table_says() -> None:
    table = {"clients": 3, "partition": "dirichlet", "alpha": 2, "train_size": 9, "noise": 1}
    group = convert(table, Group, "data.groups[0]")
    assert group == Group(3, "dirichlet", alpha=2.0, train_size=9, noise=1.0)
    assert plain(group) == table
    assert convert(plain(Group(5, relabel=1)), Group, "g") == Group(5, relabel=1, blur=0, alpha=None)  # off, and not set


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"alpha": 0.5}, r"partition iid has no setting 'alpha', dirichlet, .* have; set partition=dirichlet or leave alpha out"),
        ({"shards": 2}, "partition iid has no setting 'shards', shards has; set partition=shards or leave shards out"),
        ({"partition": "shards", "alpha": 1.0}, "partition shards has no setting 'alpha'"),
        ({"partition": "natural", "train_size": 5}, "partition natural decides the sizes itself; leave train_size out"),
        ({"partition": "dirichlett"}, r"unknown partition 'dirichlett' \(did you mean dirichlet\?\)"),
        ({"partition": "file"}, "needs path"),
        ({"nois": 1}, r"has no setting 'nois' \(did you mean noise\?\); it knows clients, partition, .* noise"),
        ({"labels": 1}, "has no setting 'labels'"),
        ({"clients": 0}, "needs at least one client, got clients=0"),
        ({"test_size": 0}, r"test_size must be at least 1, got 0"),
        ({"partition": "dirichlet", "alpha": "much"}, r"\.alpha must be a number, got 'much'"),
        ({"relabel": 0.5}, r"\.relabel must be a whole number, got 0\.5"),
    ],
)
def test_what_is_wrong_with_a_group_is_named(table: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=rf"data\.groups\[0\].*{message}" if "unknown" not in message else message):
        convert({"clients": 10, **table}, Group, "data.groups[0]")
    with pytest.raises(InputError, match=message):
        Group(**{"clients": 10, **table})  # type: ignore[arg-type]


def test_a_group_needs_its_clients() -> None:
    with pytest.raises(InputError, match=r"data\.groups\[0\] needs clients"):
        convert({"noise": 1.0}, Group, "data.groups[0]")


# Validation samples


def test_validation_samples_are_a_split_like_the_others() -> None:
    rows = [rows_of([k], [k + 1]) for k in (0, 2, 4)]
    f = Federation(torch.zeros(6, 1), torch.arange(6) % 2, rows[0], rows[1], 2, validation=rows[2])
    assert f.rows("validation")[1].tolist() == [5]
    assert f.class_counts("validation").tolist() == [[1, 0], [0, 1]]
    assert merge([f, f]).rows("validation").flat.tolist() == [4, 5, 4, 5]
    with pytest.raises(InputError, match="train has 2 clients and validation has 1"):
        replace(f, validation=rows_of([4]))
    assert replace(f, validation=rows_of([], [4])).rows("validation").sizes.tolist() == [0, 1]  # a client may have none
    with pytest.raises(InputError, match=r"the federation digits has no validation samples; hold some out of training"):
        digits(seed=0).rows("validation")
    with pytest.raises(InputError, match="only federations of one kind run together, got splits"):
        merge([f, replace(f, validation=None)])


def test_labels_are_whole_numbers_and_gaps_among_them_are_told() -> None:
    x, whose = np.zeros((4, 2), np.float32), [0, 0, 1, 1]
    with pytest.raises(InputError, match=r"whole numbers, one class per sample, got 1.9"):
        from_arrays(x, np.array([1.0, 1.9, 0, 1]), whose)
    assert from_arrays(x, np.array([1.0, 2, 0, 1]), whose).y.tolist() == [1, 2, 0, 1]
    assert from_arrays(x, np.arange(4), whose).notes == ()
    assert from_arrays(x, np.arange(4), whose, n_classes=99).notes == ("labels are below 99, and only 4 of these classes occur",)
    [note] = from_arrays(x, np.array([0, 1, 2, 70_000]), whose).notes
    assert note == "labels are below 70,001, and only 4 of these classes occur"
