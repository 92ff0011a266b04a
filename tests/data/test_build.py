"""Federations from groups, shifts, and arrays of one's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedgwc.core.errors import InputError
from fedgwc.data import Federation, Group, Rows, digits, from_arrays
from fedgwc.data.build import Pool, federate
from fedgwc.data.shifts import blurred, noisy, relabelled, rotated


def test_the_default_federation() -> None:
    f = digits(seed=0)
    assert (f.n_clients, f.n_classes, f.shape) == (100, 10, (1, 8, 8))
    assert np.bincount(f.groups).tolist() == [85, 15]
    used = np.concatenate([f.train.flat, f.test.flat])
    assert len(np.unique(used)) == len(used) == 100 * 17


def test_relabelled_clients_have_the_same_images_and_shifted_labels() -> None:
    plain = digits(seed=0, groups=(Group(85), Group(15)))
    coded = digits(seed=0)
    assert torch.equal(plain.x, coded.x)
    for split in ("train", "test"):
        for k in (0, 99):
            rows = plain.rows(split)[k]
            np.testing.assert_array_equal(rows, coded.rows(split)[k])
            shift = 1 if k == 99 else 0
            assert torch.equal((plain.y[rows] + shift) % 10, coded.y[rows])


def test_a_mixture_of_partitions() -> None:
    f = digits(
        seed=1,
        groups=(Group(10, "dirichlet", 1000), Group(5, "dirichlet", 0), Group(5, "shards", shards=2)),
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
    difference = noised.x - clean.x
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


def test_shifts_by_hand() -> None:
    image = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])[None]
    assert rotated(image, 90)[0, 0].tolist() == [[1.0, 0.0], [0.0, 0.0]]  # counter-clockwise
    assert relabelled(torch.tensor([0, 9]), 1, 10).tolist() == [1, 0]
    assert relabelled(torch.tensor([0, 9]), 10**30 + 1, 10).tolist() == [1, 0]
    flat = torch.full((1, 3, 6, 6), 7, dtype=torch.uint8)
    assert torch.equal(blurred(flat, 2.0), flat)
    point = torch.zeros(1, 1, 9, 9)
    point[0, 0, 4, 4] = 1
    spread = blurred(point, 1.0)
    assert spread.sum().item() == pytest.approx(1, abs=1e-3)
    assert spread[0, 0, 4, 4].item() == pytest.approx(1 / (2 * np.pi), abs=0.01)
    assert torch.equal(noisy(point, 1.0, 3), noisy(point, 1.0, 3))


def test_from_arrays_holds_out_a_share_of_each_client() -> None:
    client = np.repeat(["b", "a", "c"], [10, 5, 2])
    f = from_arrays(np.arange(17.0)[:, None], np.arange(17) % 3, client, test_share=0.2)
    assert f.train.sizes.tolist() == [4, 8, 1]  # in the order a, b, c
    assert f.test.sizes.tolist() == [1, 2, 1]
    assert np.sort(np.concatenate([f.train[0], f.test[0]])).tolist() == list(range(10, 15))


def test_from_arrays_takes_a_test_column() -> None:
    f = from_arrays(np.zeros((4, 1)), [0, 1, 0, 1], [0, 0, 1, 1], is_test=np.array([False, True, False, True]))
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
        Federation(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64), Rows.of([[0], [1]]), Rows.of([[2], []]), 1)


@pytest.mark.parametrize(("given", "needs"), [({"alpha": 0.5}, "partition=dirichlet"), ({"shards": 2}, "partition=shards")])
def test_what_a_partition_would_ignore_is_refused(given, needs):
    with pytest.raises(InputError, match=needs):
        Group(10, **given)


def test_labels_are_whole_numbers_and_gaps_among_them_are_told():
    x, whose = np.zeros((4, 2), np.float32), [0, 0, 1, 1]
    with pytest.raises(InputError, match=r"whole numbers, one class per sample, got 1.9"):
        from_arrays(x, np.array([1.0, 1.9, 0, 1]), whose)
    assert from_arrays(x, np.array([1.0, 2, 0, 1]), whose).y.tolist() == [1, 2, 0, 1]
    assert from_arrays(x, [0, 1, 2, 3], whose).notes == ()
    assert from_arrays(x, [0, 1, 2, 3], whose, n_classes=99).notes == ("labels are below 99, and only 4 of these classes occur",)
    [note] = from_arrays(x, [0, 1, 2, 70_000], whose).notes
    assert note == "labels are below 70,001, and only 4 of these classes occur"
