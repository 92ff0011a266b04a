"""Checks of every field that a node sends, before anything is computed with it.

A check raises `Invalid` with the reason; whoever calls drops the reply, counts it and names the client in the log.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from fedgwc.flower.moments import LARGEST as LARGEST_LOSS

MOST_SAMPLES = 10**9
MOST_STEPS = 10**4  # unless an operator says otherwise: a reply's losses are kept, and everybody's are padded to the longest
MOST_NAMES = 10**5
LONGEST_NAME = 200
LARGEST = float(np.finfo(np.float32).max)  # what is finite here must be so at the models' precision too
_HEADER = 4096  # bytes that a plain array's header may take


# What reading somebody's bytes may raise; a lost connection is none of these.
UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    DecodeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)


class Invalid(Exception):  # noqa: N818 - a verdict, not a failure of this program
    """A reply that cannot be used; the message says why."""


def array(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Read a finite array of exactly this shape and type.

    The declared size is compared before anything is allocated, and the bytes are read as numbers only: an array of
    objects, which numpy would have to unpickle, is refused by its type.
    """
    if not isinstance(value, Array):
        raise Invalid("an array is missing")
    size = math.prod(shape) * dtype.itemsize
    if not size <= len(value.data) <= size + _HEADER:
        raise Invalid(f"an array of {len(value.data)} bytes came, {size} are expected: another model?")
    stream = io.BytesIO(value.data)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        came, fortran, kind = read(stream)
    except Exception as error:  # numpy lets Python's own parser read the header: there is no telling what that raises
        raise Invalid(f"an array's header cannot be read: {str(error)[:100]}") from None
    if tuple(came) != shape or kind != dtype or (fortran and len(shape) > 1):
        raise Invalid(f"an array of shape {str(came)[:60]} and type {str(kind)[:20]} came, {shape} and {dtype} are expected")
    data = stream.read()
    if len(data) != size:
        raise Invalid(f"an array holds {len(data)} bytes, {size} are expected")
    numbers = np.frombuffer(data, dtype).reshape(shape)
    if dtype.kind == "f" and not np.isfinite(numbers).all():
        raise Invalid("an array holds NaN or infinite values")
    return numbers


def count(record: Mapping[str, Any], key: str, least: int = 0) -> int:
    """Read a whole number."""
    value = record.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_SAMPLES:
        raise Invalid(f"{key} must be a whole number in {least}..{MOST_SAMPLES}, got {_short(value)}")
    return value


def number(record: Mapping[str, Any], key: str) -> float:
    """Read a finite number."""
    value = record.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= LARGEST:
        raise Invalid(f"{key} must be a finite number within the range of float32, got {_short(value)}")
    return float(value)


def share(record: Mapping[str, Any], key: str) -> float:
    """Read a number in [0, 1]."""
    value = number(record, key)
    if not 0 <= value <= 1:
        raise Invalid(f"{key} must be in [0, 1], got {_short(value)}")
    return value


def losses(record: Mapping[str, Any], key: str = "losses", most: int = MOST_STEPS) -> NDArray[np.float64]:
    """Read one loss per local step.

    A value beyond all that losses can be would crowd out everybody else's in its cohort.
    """
    values = record.get(key)
    if isinstance(values, list) and not 1 <= len(values) <= most:
        raise Invalid(f"{key} must hold one loss per local step, at most {most}, got {len(values)} of them")
    found = numbers(record, key)
    if not (np.abs(found) <= LARGEST_LOSS).all():
        raise Invalid(
            f"{key} must be between -{LARGEST_LOSS:g} and {LARGEST_LOSS:g}, got NaN, infinite values or some beyond that"
        )
    return found


def finite(record: Mapping[str, Any], key: str) -> NDArray[np.float64]:
    """Read numbers that stay finite at the models' precision."""
    values = numbers(record, key)
    if not (np.abs(values) <= LARGEST).all():
        raise Invalid(f"{key} holds NaN, infinite values or some beyond the range of float32")
    return values


def numbers(record: Mapping[str, Any], key: str, length: int | None = None) -> NDArray[np.float64]:
    """Read a list of numbers, NaN allowed."""
    values = record.get(key)
    if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
        raise Invalid(f"{key} must be a list of numbers, got {_short(values)}")
    if length is not None and len(values) != length:
        raise Invalid(f"{key} must hold {length} numbers, got {len(values)}")
    try:
        return np.array(values, np.float64)
    except OverflowError:
        raise Invalid(f"{key} holds a number that is too large") from None


def counts(record: Mapping[str, Any], key: str, length: int | None = None) -> NDArray[np.int64]:
    """Read a list of whole numbers."""
    values = numbers(record, key, length)
    if not ((values >= 0) & (values <= MOST_SAMPLES) & (values == np.floor(values))).all():
        raise Invalid(f"{key} must hold whole numbers in 0..{MOST_SAMPLES}")
    return values.astype(np.int64)


def names(values: Any) -> tuple[str, ...]:
    """Read distinct printable names of clients."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not 1 <= len(values) <= MOST_NAMES:
        raise Invalid("it must name the clients that it serves")
    for name in values:
        if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
            raise Invalid(f"a client's name must be 1..{LONGEST_NAME} printable characters, got {_short(name)}")
    if len(set(values)) != len(values):
        raise Invalid("it names a client twice")
    return tuple(values)


def is_number(text: str) -> bool:
    """Tell whether `int` reads a text; `isdigit` accepts superscripts too."""
    return text.isascii() and text.isdigit()


def _short(value: Any) -> str:
    return repr(value)[:60]
