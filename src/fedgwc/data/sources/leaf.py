"""FEMNIST of the LEAF benchmark: every writer is a client.

62 classes, from the json files that LEAF's scripts make.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids
from fedgwc.data import options
from fedgwc.data.federation import Federation
from fedgwc.data.held_out import split_clients
from fedgwc.data.rows import Rows
from fedgwc.data.sources.roots import Root, candidate_folders, not_found

N_CLASSES = 62
SIDE = 28


@dataclass(frozen=True)
class Shards:
    """Samples of one folder, in the order of its files."""

    x: NDArray[np.uint8]  # [R, 1, 28, 28]; LEAF writes k / 255, so bytes lose nothing
    y: Ids  # [R]
    users: dict[str, Ids]  # each user's rows


def leaf_femnist(
    *,
    seed: options.Seed,
    root: options.Root = None,
    min_images: options.MinImages = 2,
    test_share: options.TestShare = 0.2,
    augment: options.Augment = False,
) -> Federation:
    """Read LEAF's FEMNIST json files; each user is a client.

    With folders train/ and test/ (LEAF's split by sample) each user's test set is what test/ holds; with one folder
    of `all_data_*.json`, a seeded `test_share` of each user's images. Users with fewer than `min_images` are dropped.
    """
    folder = _folder(root)
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        data, train, test, names, n_users = _join_split(read(folder / "train"), read(folder / "test"), min_images)
    else:
        data = read(folder)
        kept = {i: rows for i, rows in enumerate(data.users.values()) if len(rows) >= min_images}
        train, test = split_clients(list(kept.values()), test_share, seed, list(kept))
        users = list(data.users)
        names, n_users = [users[i] for i in kept], len(users)
    dropped = n_users - len(names)
    notes = (f"{len(train)} users; {dropped} dropped with fewer than {min_images} images or none to train or test on",)
    return Federation(
        torch.from_numpy(data.x),
        torch.from_numpy(data.y),
        train,
        test,
        N_CLASSES,
        augment=augment,
        name="leaf_femnist",
        notes=notes,
        client_names=tuple(names),
    )


def read(folder: Path) -> Shards:
    """Read all json files of `folder`, one at a time.

    A shard is large as text, small as bytes.
    """
    parts: list[tuple[NDArray[np.uint8], Ids]] = []
    users: dict[str, Ids] = {}
    start = 0
    for path in sorted(folder.glob("*.json")):
        for user, x, y in _shard(path):
            if user in users:
                raise InputError(f"{path} holds user {user!r} again; a user's samples must be in one file")
            users[user] = np.arange(start, start + len(y))
            start += len(y)
            parts.append((x, y))
    if not parts:
        raise InputError(f"{folder} has no json file with users; run LEAF's preprocessing of femnist first")
    return Shards(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]), users)


def _folder(root: Root) -> Path:
    for place in candidate_folders("leaf_femnist", root):
        for folder in (place, place / "all_data", place / "data", place / "data" / "all_data"):
            if (folder / "train").is_dir() or any(folder.glob("*.json")):
                return folder
    raise not_found("leaf_femnist", ["train/ and test/", "all_data_*.json"], root)


def _shard(path: Path) -> list[tuple[str, NDArray[np.uint8], Ids]]:
    try:
        table = json.loads(path.read_bytes())
        counts = dict(zip(table["users"], table["num_samples"], strict=True))
        return [(user, *_samples(table["user_data"][user], n, user, path)) for user, n in counts.items()]
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path} is not a LEAF file ({error!r}); it needs users, num_samples and user_data") from error


def _samples(data: dict[str, Any], n: int, user: str, path: Path) -> tuple[NDArray[np.uint8], Ids]:
    x, y = np.asarray(data["x"], np.float32), np.asarray(data["y"], np.int64)
    if x.shape != (n, SIDE * SIDE) or y.shape != (n,):
        raise InputError(f"{path}, user {user!r}: {n} samples promised, x is {x.shape} and y {y.shape}; run LEAF's scripts again")
    if n and not (x.min() >= 0 and x.max() <= 1 and y.min() >= 0 and y.max() < N_CLASSES):
        raise InputError(f"{path}, user {user!r}: pixels must be in 0..1 and labels in 0..{N_CLASSES - 1}")
    return np.rint(x * 255).astype(np.uint8).reshape(n, 1, SIDE, SIDE), y


def _join_split(train: Shards, test: Shards, least: int) -> tuple[Shards, Rows, Rows, list[str], int]:
    """Join LEAF's own training and test samples.

    Returns all samples, the rows of the users that stay, their names, and the number of users.
    """
    shift = len(train.y)
    both = [u for u in train.users if u in test.users and len(train.users[u]) and len(test.users[u])]
    if not both:
        raise InputError("train/ and test/ share no user; make LEAF's split by sample (-t sample), or give the folder all_data/")
    kept = [u for u in both if len(train.users[u]) + len(test.users[u]) >= least]
    everyone = len(train.users.keys() | test.users.keys())
    data = Shards(np.concatenate([train.x, test.x]), np.concatenate([train.y, test.y]), {})
    rows = Rows.of([train.users[u] for u in kept]), Rows.of([test.users[u] + shift for u in kept])
    return data, *rows, kept, everyone
