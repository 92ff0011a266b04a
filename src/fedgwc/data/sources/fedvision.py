"""Photographs by user: Landmarks-User-160K and iNaturalist-User-120K.

The user splits of Hsu et al. (2020), over a folder of photographs.

The train csv has the columns `user_id,image_id,class` (iNaturalist adds `label`), the test csv the same without
`user_id`. Test images have no user, so:

- a client's own test set is a seeded share of its train images, which it never trains on;
- the images of the test csv are the global test set: `Federation.global_test`, rows that no client owns, to score any
  one model on everybody's task.
"""

from __future__ import annotations

import csv
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from fedgwc.core.errors import InputError, NotHere
from fedgwc.core.types import Ids
from fedgwc.data import options
from fedgwc.data.federation import Federation, Samples
from fedgwc.data.held_out import split_clients
from fedgwc.data.sources.images import ImageCache
from fedgwc.data.sources.roots import Root, candidate_folders, not_found
from fedgwc.io.zips import BAD_ZIP, members

MOST_CLASSES = 10**6
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # the models start from weights trained with these


@dataclass(frozen=True)
class UserSplit:
    users: tuple[str, ...]
    owner: Ids  # [n_train] the user of each train image
    images: tuple[str, ...]  # [R] image ids, train rows first
    y: Ids  # [R]
    n_train: int

    @property
    def sizes(self) -> Ids:
        """Count each user's training images, [users]."""
        return np.bincount(self.owner, minlength=len(self.users))


@dataclass(frozen=True)
class UserSet:
    name: str
    bundle: str  # the published zip, or the folder it unpacks to
    train: str
    paper_clients: int  # how many of the users the FedGWC paper kept; its filter is not published


LANDMARKS = UserSet("landmarks", "landmarks-user-160k", "federated_train.csv", 823)
INATURALIST = UserSet("inaturalist", "inaturalist-user-120k", "federated_train_user_120k.csv", 2714)
USER_SETS = {users.name: users for users in (LANDMARKS, INATURALIST)}

Size = Annotated[int, "height and width to which photographs are brought"]


def landmarks(
    *,
    seed: options.Seed,
    root: options.Root = None,
    size: Size = 224,
    min_images: options.MinImages = 2,
    test_share: options.TestShare = 0.2,
    augment: options.Augment = False,
) -> Federation:
    """Read Landmarks-User-160K: photographs of landmarks, by photographer.

    164,172 photographs of 2,028 landmarks.

    Users with fewer than `min_images` images are dropped; `test_share` of each client's images are its test set.
    """
    return _federation(LANDMARKS, root, size, min_images, test_share, seed, augment)


def inaturalist(
    *,
    seed: options.Seed,
    root: options.Root = None,
    size: Size = 224,
    min_images: options.MinImages = 2,
    test_share: options.TestShare = 0.2,
    augment: options.Augment = False,
) -> Federation:
    """Read iNaturalist-User-120K: photographs of species, by observer.

    120,300 photographs of 1,203 species; the settings are those of landmarks.
    """
    return _federation(INATURALIST, root, size, min_images, test_share, seed, augment)


def _federation(
    users: UserSet, root: Root, size: int, min_images: int, test_share: float, seed: int, augment: bool
) -> Federation:
    split = open_split(users, root)
    cache = open_cache(users, split, root, size)
    federation = by_users(split, cache, users, min_images, test_share, seed, augment)
    used = np.concatenate([federation.train.flat, federation.test.flat])
    if absent := cache.absent(used.tolist()):
        raise NotHere(f"{len(absent)} of {len(used)} images are not below {cache.folder}, such as {absent[0]}.jpg; add them")
    return federation


def by_users(
    split: UserSplit, x: Samples, users: UserSet, min_images: int, test_share: float, seed: int, augment: bool = False
) -> Federation:
    kept = np.flatnonzero(split.sizes >= max(min_images, 2))  # one image to train on, one to test
    if not len(kept):
        raise InputError(f"no user has {min_images} images, the most is {split.sizes.max()}; lower data.min_images")
    order = np.argsort(split.owner, kind="stable")
    rows = np.split(order, np.cumsum(split.sizes)[:-1])
    train, test = split_clients([rows[k] for k in kept], test_share, seed, kept)
    notes = (f"{len(kept)} of {len(split.users)} users have at least {max(min_images, 2)} images", _paper_note(split, users))
    n_classes = int(split.y.max()) + 1
    everyone = np.arange(split.n_train, len(split.y))
    y = torch.from_numpy(split.y)
    names = tuple(split.users[k] for k in kept)
    return Federation(x, y, train, test, n_classes, None, *IMAGENET, augment, users.name, notes, everyone, names)


def min_images_for(sizes: Ids, clients: int) -> int | None:
    """Find the smallest `min_images` that keeps exactly `clients` users.

    None if there is none.

    >>> min_images_for(np.array([9, 5, 5, 2]), 3), min_images_for(np.array([9, 5, 5, 2]), 2)
    (3, None)
    """
    falling = [*np.sort(sizes)[::-1].tolist(), 0]
    if not 0 < clients <= len(sizes) or falling[clients - 1] == falling[clients]:
        return None
    return int(falling[clients]) + 1


def _paper_note(split: UserSplit, users: UserSet) -> str:
    least = min_images_for(split.sizes, users.paper_clients)
    what = "no min_images" if least is None else f"min_images = {least}"
    return f"{what} gives the {users.paper_clients} clients of the paper, whose filter is not published"


def open_split(users: UserSet, root: Root = None) -> UserSplit:
    """Read the two csv files, from their folder or the zip."""
    for place in candidate_folders(users.name, root):
        for folder in (place / users.bundle, place):
            if (folder / users.train).is_file():
                return read_split(_text(folder / users.train), _text(folder / "test.csv"), str(folder))
        bundle = place / f"{users.bundle}.zip"
        if bundle.is_file():
            return read_split(_text(bundle, users.train), _text(bundle, "test.csv"), str(bundle))
    raise not_found(users.name, [f"{users.bundle}/{users.train}", f"{users.bundle}.zip"], root)


def _text(path: Path, member: str = "") -> str:
    try:
        if not member:
            return path.read_text(encoding="utf-8")
        with zipfile.ZipFile(path) as archive:
            inside = {name.rpartition("/")[2]: info for name, info in members(path, archive).items()}
            return archive.read(inside[member]).decode("utf-8")
    except (KeyError, ValueError, *BAD_ZIP) as error:
        raise InputError(f"cannot read {path} {member} ({error}); get the published split files again") from error


def open_cache(users: UserSet, split: UserSplit, root: Root = None, size: int = 224) -> ImageCache:
    """Open the cache of the split's images.

    It holds all of them, whatever the filter: other clients or another seed find them decoded.
    """
    folders = [place / "images" for place in candidate_folders(users.name, root)]
    folder = next((f for f in folders if f.is_dir()), folders[0])
    return ImageCache(folder, split.images, size, folder.parent / "cache")


def read_split(train: str, test: str | None, name: str) -> UserSplit:
    users, images, y = _columns(train, ("user_id", "image_id", "class"), f"{name}, train")
    _, more_images, more_y = _columns(test, ("image_id", "class"), f"{name}, test") if test else ((), (), ())
    # Shorter first: numbers written as text then stand in the order of numbers.
    order = tuple(sorted(set(users), key=lambda user: (len(user), user)))
    number = {user: k for k, user in enumerate(order)}
    owner = np.array([number[user] for user in users], np.int64)
    return UserSplit(order, owner, (*images, *more_images), np.array([*y, *more_y], np.int64), len(y))


def _columns(text: str, wanted: tuple[str, ...], name: str) -> tuple[list[str], list[str], list[int]]:
    reader = csv.DictReader(io.StringIO(text))
    if not set(wanted) <= set(reader.fieldnames or ()):
        raise InputError(f"{name}: the csv has the columns {reader.fieldnames}, it needs {', '.join(wanted)}")
    rows = list(reader)
    try:
        labels = [int(row["class"]) for row in rows]
        if max(labels, default=0) > MOST_CLASSES:
            raise ValueError(f"there are not {max(labels)} of them")
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: classes must be whole numbers ({error}); get the published file again") from error
    if not rows or min(labels) < 0 or any(row[column] is None for row in rows for column in wanted):
        raise InputError(f"{name}: the csv is empty, cut off or has negative classes; get the published file again")
    return [row.get("user_id") or "" for row in rows], [row["image_id"] for row in rows], labels
