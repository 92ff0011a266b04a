"""Reading and checks of one client's npz file.

A file that cannot be trained on is refused with the reason.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.core.errors import InputError, NotHere
from fedgwc.io.npz import read_npz

Arrays = dict[str, NDArray[Any]]
KNOWN = ("x", "y", "x_test", "y_test", "is_test", "client", "group")  # whatever else a file holds is not read
NUMBERED = "number the classes from 0, as np.unique(labels, return_inverse=True)[1] does over all clients' labels"


def load(path: Path, needed: tuple[str, ...]) -> Arrays:
    """Read the arrays of one npz file, all as long as x.

    None of them may be pickled.
    """
    if not path.exists():
        seen_from = "" if path.is_absolute() else f", seen from {Path.cwd()}"
        raise NotHere(
            f"there is no {path}{seen_from}; give an .npz file, or a folder with one per client where that is asked for"
        )
    table = read_npz(path, KNOWN)
    if lacking := [key for key in needed if key not in table]:
        there = [name.removesuffix(".npy") for name in zipfile.ZipFile(path).namelist()]
        raise InputError(f"{path} has {', '.join(there) or 'no array'} but lacks {', '.join(lacking)}")
    if ("x_test" in table) != ("y_test" in table):
        raise InputError(f"{path} has only one of x_test and y_test; give both or neither")
    if "x_test" in table and "is_test" in table:
        raise InputError(
            f"{path} has x_test and is_test; give one of them: x_test holds samples of its own, is_test marks some of x"
        )
    for key in table.keys() & {"x", "x_test"}:
        _check_samples(path, key, table[key])
    for key in table.keys() & {"y", "y_test"}:
        _check_labels(path, key, table[key])
    _check_lengths(path, table)
    if "is_test" in table:
        table["is_test"] = _marks(path, table["is_test"])
    return table


def _check_samples(path: Path, key: str, x: NDArray[Any]) -> None:
    if x.dtype.kind not in "iufb":
        raise InputError(f"{path}: {key} must hold numbers, got {x.dtype}")
    if x.ndim < 2:
        raise InputError(f"{path}: {key} has the shape {x.shape}; give samples a dimension of their own, as {key}[:, None] does")
    if x.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what is too large for training becomes infinite
            usable = np.isfinite(x.astype(np.float32, copy=False))
        if not usable.all():
            first = x[~usable].flat[0]
            raise InputError(f"{path}: {key} holds {first}; training needs finite 32-bit numbers, so clean the data first")


def _check_labels(path: Path, key: str, y: NDArray[Any]) -> None:
    if y.dtype.kind not in "iub":
        raise InputError(f"{path}: {key} must hold whole numbers, got {y.dtype}; {NUMBERED}")
    if y.size and int(y.min()) < 0:
        raise InputError(f"{path}: {key} holds {int(y.min())}; {NUMBERED}")


def _check_lengths(path: Path, table: Arrays) -> None:
    for x, *others in (("x", "y", "client", "is_test", "group"), ("x_test", "y_test")):
        for key in others:
            if key in table and table[key].shape != (len(table[x]),) and not (key == "group" and not table[key].ndim):
                came = f"{key} has the shape {table[key].shape} and {x} has {len(table[x])} samples"
                raise InputError(f"{path}: {came}; give one entry per sample")
    if "x_test" in table and table["x_test"].shape[1:] != table["x"].shape[1:]:
        came = f"x has samples of shape {table['x'].shape[1:]} and x_test of {table['x_test'].shape[1:]}"
        raise InputError(f"{path}: {came}; make them alike")


def _marks(path: Path, is_test: NDArray[Any]) -> NDArray[np.bool_]:
    """Check that an array is true and false, or 1 and 0.

    The text "no" would count as true.
    """
    if is_test.dtype.kind not in "iufb" or not np.isin(is_test, (0, 1)).all():
        raise InputError(f"{path}: is_test must hold true and false, or 1 and 0, got {is_test[:3].tolist()}")
    return is_test.astype(bool)
