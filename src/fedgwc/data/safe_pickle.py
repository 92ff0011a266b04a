"""Reads pickles of plain data: containers, bytes, str, numbers and numpy arrays of numbers. Nothing else is ever built or run.

A pickle is a program; it can only call what `find_class` hands out. What is handed out here is not numpy's own
functions but stand-ins that check every argument, cannot be altered by the pickle, and copy no more than the file holds.
"""

from __future__ import annotations

import math
import pickle
import re
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedgwc.errors import InputError

NUMBERS = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")  # no objects, no records, no strings


def load(stream: BinaryIO, name: str = "the file") -> object:
    """What `stream` holds. Text of Python 2 pickles comes as bytes, arrays as numpy arrays."""
    try:
        return _Unpickler(stream, encoding="bytes").load()
    except Exception as error:  # a malformed program can fail in any way
        raise InputError(f"{name} is not a pickle of plain data: {error}; nothing of it was run. Get the official file") from None


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not plain data") from None

    def persistent_load(self, pid: object) -> object:
        raise pickle.UnpicklingError("it refers to objects outside the file")


class _Sealed:
    """An object without state: the pickle may pass it on or call it, but not change it."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it tries to alter the loader")


class _Encode(_Sealed):
    """`_codecs.encode`, which is how protocol 2 spells bytes."""

    __slots__ = ()

    def __call__(self, text: str, codec: str | bytes) -> bytes:
        if codec not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError(f"bytes are written with the codec {codec!r}, not latin1")
        return str.encode(text, "latin1")


class _Dtype:
    """A number type, taken apart and checked; numpy's own dtype could be turned into anything by its state."""

    __slots__ = ("code",)

    def __init__(self, code: str) -> None:
        self.code = code

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order, rest = _text(state[1]), tuple(state[2:5])
        if order not in ("<", ">", "|", "=") or rest != (None, None, None):
            raise pickle.UnpicklingError(f"an array has the type {state!r}, not plain numbers")
        self.code = order + self.code.lstrip("<>|=")


class _MakeDtype(_Sealed):
    __slots__ = ()

    def __call__(self, code: str | bytes, align: object = False, copy: object = False) -> _Dtype:
        if not NUMBERS.fullmatch(_text(code)):
            raise pickle.UnpicklingError(f"an array has the type {code!r}, not plain numbers")
        return _Dtype(_text(code))


class _Array(np.ndarray[Any, Any]):
    """An array that is filled once, from bytes that are there."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, raw = state
        if not (isinstance(kind, _Dtype) and isinstance(raw, bytes) and all(type(n) is int and n >= 0 for n in shape)):
            raise pickle.UnpicklingError("an array is not made of plain numbers")
        dtype = np.dtype(kind.code)
        if math.prod(shape) * dtype.itemsize != len(raw):
            raise pickle.UnpicklingError(f"an array of shape {shape} and type {dtype} comes with {len(raw)} bytes")
        checked: Any = (1, tuple(shape), dtype, bool(fortran), raw)
        super().__setstate__(checked)


class _Reconstruct(_Sealed):
    __slots__ = ()

    def __call__(self, kind: object, shape: tuple[int, ...], code: object) -> NDArray[Any]:
        if kind is not _ALLOWED["numpy", "ndarray"] or shape != (0,):
            raise pickle.UnpicklingError("an array does not start empty")
        return np.ndarray.__new__(_Array, (0,), "b")


def _text(value: object) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


_RECONSTRUCT = _Reconstruct()
_ALLOWED: dict[tuple[str, str], _Sealed] = {
    ("_codecs", "encode"): _Encode(),
    ("numpy", "dtype"): _MakeDtype(),
    ("numpy", "ndarray"): _Sealed(),
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,  # numpy 1
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,  # numpy 2
}
