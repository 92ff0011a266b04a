"""Validation samples and newcomers: who is held out, and that nobody trains on them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedgwc.core.errors import InputError
from fedgwc.data import Federation, Rows, Splits, hold_out
from fedgwc.data.splits import held_out_counts


def federation(sizes: list[int]) -> Federation:
    n = sum(sizes) + len(sizes)
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    tests = [np.array([sum(sizes) + k]) for k in range(len(sizes))]
    x, y = torch.arange(n, dtype=torch.float32).view(-1, 1), torch.zeros(n, dtype=torch.int64)
    names = tuple(f"site {k}" for k in range(len(sizes)))
    return Federation(x, y, Rows.of(rows), Rows.of(tests), 2, np.arange(len(sizes)), client_names=names)


def test_a_fifth_of_ten_samples_are_two() -> None:
    split = hold_out(federation([10, 4, 5]), Splits(newcomers=0), seed=3)
    assert split.train.sizes.tolist() == [8, 4, 4]
    assert split.validation is not None
    assert split.validation.sizes.tolist() == [2, 0, 1]
    assert "1 client of fewer than 5 training samples" in split.notes[-1]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=25), st.floats(0, 0.99), st.floats(0, 0.99), st.integers(0, 99))
def test_each_sample_is_held_once(sizes: list[int], validation: float, newcomers: float, seed: int) -> None:
    whole = federation(sizes)
    split = hold_out(whole, Splits(validation, newcomers), seed)
    parts = [f for f in (split, split.newcomers) if f is not None]
    assert sum(f.n_clients for f in parts) == len(sizes)
    rows = [rows.flat for f in parts for name, rows in f.splits.items() if name != "test"]
    assert np.array_equal(np.sort(np.concatenate(rows)), np.arange(sum(sizes)))
    for f in parts:
        for k in range(f.n_clients):  # every part still is of its client
            original = int(f.client_names[k].split()[1])
            assert f.known_groups[k] == original
            assert set(f.train[k]) <= set(whole.train[original])
            assert np.array_equal(f.test[k], whole.test[original])


def test_nothing_is_held_out_where_shares_are_zero() -> None:
    whole = federation([10, 10])
    assert hold_out(whole, Splits(0, 0), 0) is whole


def test_the_seed_decides() -> None:
    one, same, other = (hold_out(federation([20] * 20), Splits(), seed) for seed in (1, 1, 2))
    assert np.array_equal(one.train.flat, same.train.flat)
    assert not np.array_equal(one.train.flat, other.train.flat)
    assert one.client_names == same.client_names != other.client_names


def test_validation_never_takes_all() -> None:
    assert held_out_counts(np.array([5, 6, 1000]), 0.99).tolist() == [4, 5, 990]


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_is_below_one(share: float) -> None:
    with pytest.raises(InputError, match=r"data\.newcomers must be at least 0 and below 1"):
        Splits(newcomers=share)
