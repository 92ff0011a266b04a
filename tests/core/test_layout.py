"""Where a model's tensors lie in its vector, on five numbers."""

from __future__ import annotations

import pytest
import torch

from fedgwc.core.layout import Layout

NET = Layout(("0.weight", "0.bias", "2.weight"), ((2, 1), (1,), (2,)), 4)  # the last number of the five is a buffer's


def test_lengths_and_spans_cover_the_vector() -> None:
    assert NET.lengths == [2, 1, 2]
    assert NET.size == 5
    assert NET.layers == ["0", "2"]
    vector = torch.arange(5)
    assert {name: vector[span].tolist() for name, span in NET.spans().items()} == {
        "0.weight": [0, 1],
        "0.bias": [2],
        "2.weight": [3, 4],
    }


@pytest.mark.parametrize(
    ("prefixes", "marked"),
    [
        (["0"], [True, True, True, False, False]),
        (["0.bias"], [False, False, True, False, False]),
        (["0.weight", "2"], [True, True, False, True, True]),
        ([], [False] * 5),
        (["0.w", "22"], [False] * 5),  # whole names only
    ],
)
def test_a_mask_marks_tensors_and_layers(prefixes: list[str], marked: list[bool]) -> None:
    assert NET.mask(prefixes).tolist() == marked


def test_of_an_unnamed_vector_only_the_length_is_known() -> None:
    layout = Layout.unnamed(7)
    assert (layout.size, layout.n_params, layout.lengths) == (7, 7, [7])
    assert not layout.mask(["0"]).any()
