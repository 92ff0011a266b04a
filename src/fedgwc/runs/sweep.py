"""Swept settings: which of their values concern an algorithm, and the combinations of these."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

SHARED = ("algorithm", "local", "data", "model", "rounds")  # the tables whose sweeps concern every algorithm
Setting = tuple[tuple[str, Any], ...]


def axes_of(algorithm: str, axes: list[tuple[str, list[Any]]]) -> list[tuple[str, list[Any]]]:
    """Select the swept values that concern an algorithm.

    `ifca.k` is ifca's alone, `local.lr` everybody's.
    """
    return [(key, values) for key, values in axes if key.split(".")[0] in (algorithm, *SHARED)]


def settings_of(algorithm: str, axes: list[tuple[str, list[Any]]]) -> Iterator[Setting]:
    """List the combinations of these values."""
    own_axes = axes_of(algorithm, axes)
    for values in itertools.product(*[v for _, v in own_axes]):
        yield tuple(zip([k for k, _ in own_axes], values, strict=True))
