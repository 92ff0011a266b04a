"""Every shift: what it does to a sample, to which group, and in which order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedgwc.core.errors import InputError
from fedgwc.data import SHIFTS, Group, digits
from fedgwc.data.shifts import Samples, blur, check_shift, noise, permute, relabel, rotate

SOME: dict[str, float] = {"blur": 1.0, "rotate": 90.0, "relabel": 1, "permute": 1, "noise": 0.5}


def images(x: torch.Tensor, y: tuple[int, ...] = (0,)) -> Samples:
    return Samples(x, torch.tensor(y), 10)


def labels(*y: int, seed: int = 0) -> Samples:
    return Samples(torch.zeros(len(y), 1), torch.tensor(y), 10, seed=seed)


def four(name: str, value: Any) -> Group:
    """Return a group of four clients with one shift."""
    return Group(4, **{name: value})


@pytest.mark.parametrize("name", SHIFTS)
def test_a_shift_reaches_its_group_and_no_other(name: str) -> None:
    """And who has which sample stays as it is."""
    plain = digits(seed=0, groups=(Group(4), Group(4)))
    shifted = digits(seed=0, groups=(Group(4), four(name, SOME[name])))
    assert np.array_equal(plain.train.flat, shifted.train.flat)
    mine = torch.from_numpy(np.concatenate([*(shifted.train[k] for k in range(4, 8)), *(shifted.test[k] for k in range(4, 8))]))
    changed = (plain.x[:] != shifted.x[:]).flatten(1).any(1) | (plain.y != shifted.y)
    assert changed[mine].any()
    changed[mine] = False
    assert not changed.any()


@pytest.mark.parametrize("name", SHIFTS)
def test_zero_turns_a_shift_off(name: str) -> None:
    assert four(name, 0) == Group(4)


@pytest.mark.parametrize("name", SHIFTS)
def test_every_shift_can_be_set_by_a_recipe(name: str) -> None:
    check_shift(name, SHIFTS[name])


def test_images_are_turned_and_blurred() -> None:
    image = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])[None]
    assert rotate(images(image), 90).x[0, 0].tolist() == [[1.0, 0.0], [0.0, 0.0]]  # counter-clockwise
    flat = torch.full((1, 3, 6, 6), 7, dtype=torch.uint8)
    assert torch.equal(blur(images(flat), 2.0).x, flat)
    point = torch.zeros(1, 1, 9, 9)
    point[0, 0, 4, 4] = 1
    spread = blur(images(point), 1.0).x
    assert spread.sum().item() == pytest.approx(1, abs=1e-3)
    assert spread[0, 0, 4, 4].item() == pytest.approx(1 / (2 * np.pi), abs=0.01)


def test_labels_are_shifted() -> None:
    assert relabel(labels(0, 9), 1).y.tolist() == [1, 0]
    assert relabel(labels(0, 9), 10**30 + 1).y.tolist() == [1, 0]


def test_labels_are_permuted_by_number_and_seed() -> None:
    every = labels(*range(10))
    once = permute(every, 1).y
    assert sorted(once.tolist()) == list(range(10))
    assert torch.equal(once, permute(replace(every, group=3), 1).y)  # groups of the same number share it
    assert not torch.equal(once, permute(every, 2).y)
    assert not torch.equal(once, permute(labels(*range(10), seed=1), 1).y)


def test_noise_is_of_the_group_and_fixed() -> None:
    point = images(torch.zeros(1, 1, 9, 9))
    assert torch.equal(noise(point, 1.0).x, noise(point, 1.0).x)
    assert not torch.equal(noise(point, 1.0).x, noise(replace(point, group=1), 1.0).x)


def test_noise_makes_numbers_of_bytes_for_all_groups() -> None:
    grey = images(torch.full((1, 1, 2, 2), 255, dtype=torch.uint8))
    assert noise(grey, 1e-9).x.tolist() == [[[[1.0, 1.0], [1.0, 1.0]]]]


def test_shifts_are_applied_in_the_order_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels are shifted before they are permuted, whatever comes first in a recipe."""
    group = Group(4, permute=1, relabel=1)
    assert list(group.shifts) == ["relabel", "permute"]

    def twice(samples: Samples, value: int) -> Samples:
        return replace(samples, y=(2 * samples.y * value) % samples.n_classes)

    monkeypatch.setitem(SHIFTS, "twice", twice)  # one line adds one
    f, g = digits(seed=0, groups=(Group(4, relabel=1),)), digits(seed=0, groups=(Group(4, twice=1, relabel=1),))
    assert torch.equal(g.y[f.train.flat], 2 * f.y[f.train.flat] % 10)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("blur", -1.0, "blur must be >= 0 and finite, got -1.0; 0 turns it off"),
        ("blur", 9.0, "blur must be at most 8, the longer side of the images, got 9.0"),
        ("rotate", float("inf"), "rotate must be finite, got inf"),
        ("noise", 1e7, r"noise must be in 0\.\.1,000,000, got 10000000\.0"),
        ("permute", -1, "permute must be >= 0, got -1"),
    ],
)
def test_values_without_a_meaning(name: str, value: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        digits(seed=0, groups=(four(name, value),))


def test_only_images_can_be_blurred() -> None:
    with pytest.raises(InputError, match=r"blur and rotation need images \[rows, ..., height, width\], got samples of shape"):
        blur(images(torch.zeros(2, 3)), 1.0)


def test_a_shift_takes_samples_and_a_value() -> None:
    def strange(samples: Samples, value: float, more: int) -> Samples:
        return samples

    def bare(samples: Samples, value) -> Samples:  # type: ignore[no-untyped-def]
        return samples

    wrong: list[tuple[Any, str]] = [(strange, "must take samples and value, and nothing else"), (bare, "annotate value with int")]
    for shift, message in wrong:
        with pytest.raises(InputError, match=message):
            check_shift("mine", shift)
