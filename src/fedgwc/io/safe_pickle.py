"""Safe reading of pickles of plain data.

Containers, bytes, str, numbers and numpy arrays of numbers: nothing else is ever built or run.

A pickle is a program; it can only call what `find_class` hands out. What is handed out here is not numpy's own
functions but stand-ins that check every argument, cannot be altered by the pickle, and together copy no more than was read.
"""

from __future__ import annotations

import math
import pickle
import re
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedgwc.core.errors import InputError

NUMBERS = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")  # no objects, no records, no strings


def load(stream: BinaryIO, name: str = "the file") -> object:
    """Read the plain data in a pickle.

    Text of Python 2 pickles comes as bytes, arrays as numpy arrays.
    """
    try:
        return _Unpickler(stream).load()
    except Exception as error:  # a malformed program can fail in any way
        raise InputError(f"{name} is not a pickle of plain data: {error}; nothing of it was run. Get the official file") from None


class _Budget:
    """A stream that counts the bytes read.

    They bound the memory that an honest pickle can ask for.

    Without this a pickle could name one long text and have it copied a million times.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._left = stream, 0

    def read(self, size: int, /) -> bytes:
        return self._counted(self._stream.read(size))

    def readline(self) -> bytes:
        return self._counted(self._stream.readline())

    def _counted(self, raw: bytes) -> bytes:
        self._left += 2 * len(raw)  # a text may turn into bytes, and those into an array
        return raw

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise pickle.UnpicklingError("it makes more of its bytes than there are")


class _Unpickler(pickle._Unpickler):
    """An unpickler of allowed types only.

    Python's own rather than C's, whose memory is as large as the largest number that a pickle names.
    """

    def __init__(self, stream: BinaryIO) -> None:
        budget = _Budget(stream)
        super().__init__(budget, encoding="bytes")
        reconstruct = _Reconstruct(budget)
        self._allowed: dict[tuple[str, str], _Sealed] = {
            ("_codecs", "encode"): _Encode(budget),
            ("numpy", "dtype"): _MakeDtype(),
            ("numpy", "ndarray"): _NDARRAY,
            ("numpy.core.multiarray", "_reconstruct"): reconstruct,  # numpy 1
            ("numpy._core.multiarray", "_reconstruct"): reconstruct,  # numpy 2
        }

    def find_class(self, module: str, name: str) -> object:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not plain data") from None

    def persistent_load(self, pid: object) -> object:
        raise pickle.UnpicklingError("it refers to objects outside the file")


class _Sealed:
    """An object that a pickle cannot change.

    The pickle may pass it on or call it.
    """

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it tries to alter the loader")


class _Encode(_Sealed):
    """A stand-in for `codecs.encode`, by which protocol 2 writes bytes."""

    __slots__ = ("_budget",)

    def __init__(self, budget: _Budget) -> None:
        self._budget = budget

    def __call__(self, text: str, codec: str | bytes) -> bytes:
        if codec not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError(f"bytes are written with the codec {codec!r}, not latin1")
        self._budget.spend(len(text))
        return str.encode(text, "latin1")


class _Dtype:
    """A checked number type.

    numpy's own dtype could be turned into anything by its state.
    """

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
    """An array that is filled once, from bytes in the pickle."""

    budget: _Budget

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, raw = state
        if not (isinstance(kind, _Dtype) and isinstance(raw, bytes) and all(type(n) is int and n >= 0 for n in shape)):
            raise pickle.UnpicklingError("an array is not made of plain numbers")
        dtype = np.dtype(kind.code)
        if math.prod(shape) * dtype.itemsize != len(raw):
            raise pickle.UnpicklingError(f"an array of shape {shape} and type {dtype} comes with {len(raw)} bytes")
        self.budget.spend(len(raw))
        checked: Any = (1, tuple(shape), dtype, bool(fortran), raw)
        super().__setstate__(checked)


class _Reconstruct(_Sealed):
    __slots__ = ("_budget",)

    def __init__(self, budget: _Budget) -> None:
        self._budget = budget

    def __call__(self, kind: object, shape: tuple[int, ...], code: object) -> NDArray[Any]:
        if kind is not _NDARRAY or shape != (0,):
            raise pickle.UnpicklingError("an array does not start empty")
        empty = np.ndarray.__new__(_Array, (0,), "b")
        empty.budget = self._budget
        return empty


def _text(value: object) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


_NDARRAY = _Sealed()
