"""Checks of the arguments of public functions.

A wrong argument is an InputError that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats

ROUNDING = 1e-6  # so far may means of values in [0, 1] lie outside of it


def numbers(argument: ArrayLike, name: str) -> NDArray[Any]:
    """Convert an argument to an array of numbers.

    It keeps its own numeric type; Python objects become float64.
    """
    try:
        array = np.asarray(argument)
        if array.dtype.kind == "O":  # Python's longest integers, say
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} must be numbers, in rows of one length: {error}") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must be numbers, got {array.dtype}")
    return array


def number(argument: float, name: str, allowed: str, is_allowed: Callable[[float], bool]) -> float:
    value = numbers(argument, name)
    if value.ndim or not is_allowed(float(value)):
        raise InputError(f"{name} must be {allowed}, got {argument}")
    return float(value)


def integer(argument: int, name: str, least: int, most: int | None = None) -> int:
    value = numbers(argument, name)
    if value.ndim or value.dtype.kind not in "iu" or value < least or (most is not None and value > most):
        raise InputError(
            f"{name} must be a whole number {f'>= {least}' if most is None else f'in {least}..{most}'}, got {argument}"
        )
    return int(value)


def check_means(values: NDArray[Any], name: str) -> None:
    """Check that running means of values in [0, 1] lie in [0, 1]."""
    if not ((values >= -ROUNDING) & (values <= 1 + ROUNDING)).all():  # which NaN is not
        raise InputError(f"{name} must hold means of values in [0, 1], got {_span(values)}")


def check_counts(values: NDArray[Any], name: str) -> None:
    if not ((values >= 0) & (values < np.inf)).all():
        raise InputError(f"{name} must be counts, finite and >= 0, got {_span(values)}")


def _span(values: Floats) -> str:
    return "NaN" if np.isnan(values).any() else f"{values.min()}..{values.max()}"
