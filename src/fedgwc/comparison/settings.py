"""Swept settings: choices of a method, or conditions under which methods are compared.

A method's own settings and how its clients train are choices: of each method the best on validation is reported. Data, model
and rounds are conditions: methods are compared under each of them, and nothing is chosen.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

CONDITIONS = ("data", "model", "rounds")
SHARED = ("algorithm", "local", *CONDITIONS)  # the tables whose sweeps concern every algorithm
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


def condition_of(setting: Setting) -> Setting:
    """Return the swept settings under which methods are compared."""
    return tuple((key, value) for key, value in setting if key.split(".")[0] in CONDITIONS)


def choice_of(setting: Setting) -> Setting:
    """Return the swept settings that are a method's own."""
    return tuple((key, value) for key, value in setting if key.split(".")[0] not in CONDITIONS)


def setting_text(setting: Setting) -> str:
    """Write a setting by the last words of its keys.

    >>> setting_text((("ifca.k", 3), ("local.lr", 0.1)))
    'k=3 lr=0.1'
    """
    return " ".join(f"{key.split('.')[-1]}={value}" for key, value in setting)
