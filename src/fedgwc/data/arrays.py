"""Bring your own data: numpy files, one per client in a folder, or one file with a column that says whose a sample is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.core import Ids
from fedgwc.data import options
from fedgwc.data.federation import Federation, from_arrays
from fedgwc.data.held_out import held_out
from fedgwc.data.npz import read_npz
from fedgwc.errors import InputError, NotHere

Arrays = dict[str, NDArray[Any]]


def arrays(
    *,
    seed: options.Seed,
    path: Annotated[str, "a folder of one .npz per client, or one .npz with x, y, client"],
    test_share: options.TestShare = 0.2,
    shape: Annotated[tuple[int, ...] | None, "of a sample, if it must be this one"] = None,
    n_classes: Annotated[int | None, "more, where there are classes that nobody has; unset: the highest label + 1"] = None,
    mean: Annotated[tuple[float, ...], "subtracted from samples: one value, or one per channel"] = (),
    std: Annotated[tuple[float, ...], "what samples are divided by then, likewise"] = (),
    augment: options.Augment = False,
) -> Federation:
    """`path` is a folder of one `.npz` per client (x, y and perhaps x_test, y_test), or one `.npz` with x, y, client.

    Clients are called as their files, or as `client` says. The one file may also have `is_test` (else a seeded `test_share` of
    each client's samples is held out, as it is for a client's file without x_test) and `group`, the known group of each
    sample's client. `shape` is a sample's, if it must be this one, and `n_classes` counts classes that some clients lack too.
    """
    if not 0 < test_share < 1:
        raise InputError(f"data.test_share must be in (0, 1), got {test_share}")
    where = Path(path).expanduser()
    if not where.exists():
        raise NotHere(f"{where} cannot be read: it is not there; give the path of an .npz file, or of a folder of them")
    files = _files(where) if where.is_dir() else []
    table = _folder(where, files, test_share, seed) if files else load(where, ("x", "y", "client"))
    federation = from_arrays(
        table["x"],
        table["y"],
        table["client"],
        test_share=test_share,
        seed=seed,
        is_test=table["is_test"].astype(bool) if "is_test" in table else None,
        n_classes=n_classes,
        groups=_groups(table, where) if "group" in table else None,
    )
    if shape is not None and federation.shape != shape:
        raise InputError(f"{where} has samples of shape {federation.shape}, and data.shape is {shape}; correct one of them")
    names = tuple(file.stem for file in files) or federation.client_names
    return replace(federation, mean=mean, std=std, augment=augment, name=where.stem or "arrays", client_names=names)


def load(path: Path, needed: tuple[str, ...]) -> Arrays:
    """The arrays of one npz file, none of them pickled, all as long as x."""
    table = read_npz(path)
    lacking = [key for key in needed if key not in table]
    if lacking:
        raise InputError(f"{path} has {', '.join(table) or 'no array'} but lacks {', '.join(lacking)}")
    if ("x_test" in table) != ("y_test" in table):
        raise InputError(f"{path} has only one of x_test and y_test; give both or neither")
    for key in table.keys() & {"x", "x_test"}:
        _check_samples(path, key, table[key])
    for key in table.keys() & {"y", "y_test"}:
        if table[key].dtype.kind not in "iub":
            raise InputError(f"{path}: {key} must hold whole numbers, got {table[key].dtype}")
    for x, *others in (("x", "y", "client", "is_test", "group"), ("x_test", "y_test")):
        for key in others:
            if key in table and table[key].shape != (len(table[x]),):
                came = f"{key} has the shape {table[key].shape} and {x} has {len(table[x])} samples"
                raise InputError(f"{path}: {came}; give one entry per sample")
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


def _files(folder: Path) -> list[Path]:
    # client_2 before client_10
    paths = sorted(folder.glob("*.npz"), key=lambda p: [int(t) if t.isdecimal() else t for t in re.split(r"(\d+)", p.stem)])
    if not paths:
        raise InputError(f"{folder} has no .npz file; it needs one per client, with x and y")
    return paths


def _folder(folder: Path, files: list[Path], share: float, seed: int) -> Arrays:
    parts = [_client(path, k, share, seed) for k, path in enumerate(files)]
    shapes = {part["x"].shape[1:] for part in parts}
    if len(shapes) > 1:
        raise InputError(f"the clients of {folder} have samples of different shapes: {sorted(shapes)}; make them alike")
    bytes_ = [part["x"].dtype == np.uint8 for part in parts]  # which are divided by 255
    if any(bytes_) and not all(bytes_):
        odd = files[bytes_.index(not bytes_[0])]
        raise InputError(
            f"{odd} has samples of another type than {files[0]}: bytes, which are divided by 255, beside other numbers"
        )
    return {key: np.concatenate([part[key] for part in parts]) for key in ("x", "y", "client", "is_test")}


def _client(path: Path, number: int, share: float, seed: int) -> Arrays:
    table = load(path, ("x", "y"))
    x, y = table["x"], table["y"]
    is_test = np.zeros(len(y), bool)
    if "x_test" in table:
        x, y = np.concatenate([x, table["x_test"]]), np.concatenate([y, table["y_test"]])
        is_test = np.arange(len(y)) >= len(table["y"])
    elif len(y) < 2:
        raise InputError(f"{path} has {len(y)} samples; a client needs at least 2, one to train and one to test")
    else:
        is_test[held_out(np.arange(len(y)), share, np.random.default_rng([seed, number]))[1]] = True
    return {"x": x, "y": y, "client": np.full(len(y), number), "is_test": is_test}


def _groups(table: Arrays, path: Path) -> Ids:
    """[N]: the group of each client, in the order of clients; all samples of a client must agree."""
    _, first, owner = np.unique(table["client"], return_index=True, return_inverse=True)
    _, group = np.unique(table["group"], return_inverse=True)
    if not np.array_equal(group[first][owner], group):
        raise InputError(f"{path}: some client has samples of two groups; a client belongs to one")
    found: Ids = group[first].astype(np.int64)
    return found
