"""What a visit shows: bounded, block by block, and less what all have in common."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedgwc.algorithms.evidence.views import MOST_BLOCKS, Blocks, directions, less_common
from fedgwc.core.layout import Layout

LAYOUT = Layout(("0.weight", "0.bias", "2.weight", "4.weight", "2.running"), ((4, 3), (4,), (2, 4), (2, 2), (2,)), 28)
BLOCKS = Blocks.of(LAYOUT)


def test_blocks_are_layers_without_buffers_and_without_the_last() -> None:
    alone = Blocks.of(Layout(("0.weight",), ((4, 3),), 12))
    assert (alone.names, alone.ends) == (("0",), (12,))
    assert (BLOCKS.names, BLOCKS.ends) == (("0", "2"), (16, 24))


def test_a_deep_model_has_blocks_of_neighbours() -> None:
    deep = Layout(tuple(f"{i}.weight" for i in range(100)), ((1,),) * 100, 100)
    assert len(Blocks.of(deep).ends) == MOST_BLOCKS
    assert Blocks.of(deep).ends[-1] == 99


def test_inner_products_stay_about_the_same() -> None:
    """One block of 5,000 entries in 512 numbers: cosines are off by about 1 / sqrt(512)."""
    pulls = torch.randn(20, 5000, generator=torch.Generator().manual_seed(0))
    pulls[10:] += 2 * pulls[:10]
    seen = directions(pulls, Blocks(("0",), (5000,)), 512)
    unit = torch.nn.functional.normalize(pulls).double().numpy()
    assert np.abs(seen @ seen.T - unit @ unit.T).max() < 6 / np.sqrt(512)


@pytest.mark.parametrize("bad", [1e30, float("nan"), float("inf"), 0.0])
def test_nobody_weighs_more_than_others(bad: float) -> None:
    pulls = torch.randn(5, 24, generator=torch.Generator().manual_seed(0))
    pulls[0] = bad
    pulls[1, 3] = bad
    seen = directions(pulls, BLOCKS, 8)
    assert np.isfinite(seen).all()
    assert (np.linalg.norm(seen.reshape(5, 2, 4), axis=2) < 3).all()
    assert np.array_equal(directions(1000 * pulls[2:], BLOCKS, 8).round(5), seen[2:].round(5))


def test_what_all_have_in_common_is_subtracted() -> None:
    """1 and 3 are 1 from their mean, of which each is a half itself: 2 apart from the other. Who is alone shows nothing."""
    seen = less_common(np.array([[1.0], [3.0], [7.0]]), np.array([0, 0, 1]))
    assert seen.ravel().tolist() == [-2.0, 2.0, 0.0]
