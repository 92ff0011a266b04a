"""Users' own data in numpy files.

One file per client in a folder, or one file with a column of clients.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids
from fedgwc.data import options
from fedgwc.data.federation import Federation, from_arrays
from fedgwc.data.held_out import held_out
from fedgwc.data.sources.client_file import NUMBERED, Arrays, load

SMALLEST = 1e-30  # deviation: divided by less, samples of about 1 are beyond 32-bit numbers soon
SURELY = 1000  # so many classes are believed, however few samples there are


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
    """Read your own `.npz` files (docs/data.md: Your own data).

    A folder with one file per client, or one file.

    A client's file has `x`, `y` and perhaps `x_test`, `y_test`, `is_test`, `group`; the one file of all has `x`, `y`, `client`
    and perhaps `is_test`, `group`. Clients are called as their files, or as `client` says. Where nothing says what is for
    testing, a seeded `test_share` of each client's samples is held out. `shape` is a sample's, if it must be this one, and
    `n_classes` counts classes that nobody has too.
    """
    if not 0 < test_share < 1:
        raise InputError(f"data.test_share must be in (0, 1), got {test_share}")
    where = Path(path).expanduser()
    files = _files(where) if where.is_dir() else []
    table = _folder(where, files, test_share, seed) if files else _one_file(where)
    names = tuple(file.stem for file in files) or _names(table)
    _check_classes(table, [str(file) for file in files] or [f"{where}, client {name}" for name in names], n_classes)
    federation = from_arrays(
        table["x"],
        table["y"],
        table["client"],
        test_share=test_share,
        seed=seed,
        is_test=_test_rows(table, where, names),
        n_classes=n_classes,
        groups=_groups(table, where) if "group" in table else None,
    )
    if shape is not None and federation.shape != shape:
        raise InputError(f"{where} has samples of shape {federation.shape}, and data.shape is {shape}; correct one of them")
    if augment and len(federation.shape) != 3:
        raise InputError(
            f"data.augment crops and flips images (channels, height, width); {where} has samples of {federation.shape}"
        )
    mean, std = (_per_channel(values, key, federation.shape) for key, values in (("mean", mean), ("std", std)))
    return replace(federation, mean=mean, std=std, augment=augment, name=where.stem or "arrays", client_names=names)


def _one_file(path: Path) -> Arrays:
    table = load(path, ("x", "y", "client"))
    if "x_test" in table:
        raise InputError(f"{path} has x_test, which nobody owns; put these samples into x and mark them in is_test")
    if table["client"].dtype.kind == "f" and np.isnan(table["client"]).any():
        raise InputError(f"{path}: client holds nan; say of every sample whose it is")
    if table.get("group", np.empty(1)).ndim == 0:
        raise InputError(f"{path}: group has one value for all clients; give one entry per sample, or none")
    return table


def _names(table: Arrays) -> tuple[str, ...]:
    return tuple(map(str, np.unique(table["client"]).tolist()))


def _check_classes(table: Arrays, owners: list[str], n_classes: int | None) -> None:
    at = int(np.argmax(table["y"])) if len(table["y"]) else 0
    highest = int(table["y"][at]) if len(table["y"]) else 0
    whose = owners[int(np.unique(table["client"], return_inverse=True)[1][at])] if len(table["y"]) else ""
    if n_classes is not None and highest >= n_classes:
        raise InputError(f"{whose}: y holds {highest}, and data.n_classes is {n_classes}; set it to {highest + 1} or more")
    if n_classes is None and highest >= max(SURELY, len(table["y"])):
        what = f"y holds {highest}, and there are {len(table['y'])} samples in all"
        raise InputError(f"{whose}: {what}; {NUMBERED}, or set data.n_classes if these are classes")


def _test_rows(table: Arrays, where: Path, names: tuple[str, ...]) -> NDArray[np.bool_] | None:
    """Mark the rows that are for testing, [R], if known.

    Every client needs some of either kind.
    """
    if "is_test" not in table:
        return None
    is_test = table["is_test"]
    _, owner = np.unique(table["client"], return_inverse=True)
    for what, rows in (("training", ~is_test), ("test", is_test)):
        without = np.flatnonzero(np.bincount(owner[rows], minlength=len(names)) == 0)
        if len(without):
            also = f" ({len(without)} such clients)" if len(without) > 1 else ""
            raise InputError(
                f"{where}: client {names[without[0]]} has no {what} sample{also}; give it one, leave the client out, or say "
                f"nothing of test data, so that data.test_share of the samples is held out"
            )
    return is_test


def _per_channel(values: tuple[float, ...], key: str, shape: tuple[int, ...]) -> tuple[float, ...]:
    """Repeat one value for all channels.

    Samples that are no images have one channel.
    """
    channels = shape[0] if len(shape) == 3 else 1
    if len(values) not in (0, 1, channels):
        allowed = f"1 value or {channels}, one per channel" if channels > 1 else "1 value"
        raise InputError(f"data.{key} needs {allowed}, for samples of shape {shape}, got {len(values)}: {list(values)}")
    if not np.isfinite(values).all() or (key == "std" and min(values, default=1.0) < SMALLEST):
        least = f" and at least {SMALLEST:g}" if key == "std" else ""
        raise InputError(f"data.{key} must be finite{least}, got {list(values)}")
    return values * (shape[0] if len(values) == 1 and len(shape) > 1 else 1)  # what the engine calls channels


def _files(folder: Path) -> list[Path]:
    """List the files of a folder without hidden ones.

    Systems leave hidden files beside copied ones.
    """
    seen = [p for p in folder.iterdir() if not p.name.startswith(".")]
    found = [p for p in seen if p.suffix.lower() == ".npz" and p.is_file()]
    if not found:
        what = f"; it has {sorted(p.name for p in seen)[0]}, say, and is not searched further down" if seen else ""
        raise InputError(f"{folder} has no .npz file{what}; it needs one per client, np.savez(..., x=x, y=y)")
    # client_2 before client_10
    return sorted(found, key=lambda p: [int(t) if t.isdecimal() else t for t in re.split(r"(\d+)", p.stem)])


def _folder(folder: Path, files: list[Path], share: float, seed: int) -> Arrays:
    parts = [_client(path, k, share, seed) for k, path in enumerate(files)]
    _check_alike(files, [str(part["x"].shape[1:]) for part in parts], "samples of shape {}", "make them alike")
    scaled = [
        "bytes, which are divided by 255" if part["x"].dtype == np.uint8 else "numbers that are not bytes" for part in parts
    ]
    _check_alike(files, scaled, "{}", "give all the same kind")
    _check_alike(files, ["a group" if "group" in part else "no group" for part in parts], "{}", "give every client one, or none")
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _check_alike(files: list[Path], kinds: list[str], what: str, cure: str) -> None:
    odd = next((k for k, kind in enumerate(kinds) if kind != kinds[0]), None)
    if odd is not None:
        raise InputError(f"{files[odd]} has {what.format(kinds[odd])}, and {files[0]} {what.format(kinds[0])}; {cure}")


def _client(path: Path, number: int, share: float, seed: int) -> Arrays:
    table = load(path, ("x", "y"))
    x, y = table["x"], table["y"]
    is_test = table.get("is_test", np.zeros(len(y), bool))
    if "x_test" in table:
        x, y = np.concatenate([x, table["x_test"]]), np.concatenate([y, table["y_test"]])
        is_test = np.arange(len(y)) >= len(table["y"])
    elif len(y) < 2:
        raise InputError(f"{path} has {len(y)} samples; a client needs at least 2, one to train and one to test")
    elif "is_test" not in table:
        is_test[held_out(np.arange(len(y)), share, np.random.default_rng([seed, number]))[1]] = True
    group = {"group": np.full(len(y), _one_group(path, table["group"]))} if "group" in table else {}
    return {"x": x, "y": y, "client": np.full(len(y), number), "is_test": is_test, **group}


def _one_group(path: Path, group: NDArray[Any]) -> Any:
    found = np.unique(group)
    if len(found) != 1:
        raise InputError(f"{path}: group holds {found[:3].tolist()}; a client belongs to one group")
    return found[0]


def _groups(table: Arrays, path: Path) -> Ids:
    """Return each client's group [N], in the order of clients.

    All samples of a client must agree.
    """
    _, first, owner = np.unique(table["client"], return_index=True, return_inverse=True)
    _, group = np.unique(table["group"], return_inverse=True)
    if not np.array_equal(group[first][owner], group):
        raise InputError(f"{path}: some client has samples of two groups; a client belongs to one")
    found: Ids = group[first].astype(np.int64)
    return found
