"""Federations over CIFAR-10 and CIFAR-100.

Dealt out by groups, or by a published partition file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np

from fedgwc.core.errors import InputError, NotHere
from fedgwc.data import options
from fedgwc.data.build import federate
from fedgwc.data.federation import Federation
from fedgwc.data.groups import Group
from fedgwc.data.held_out import split_clients
from fedgwc.data.sources import authors_partition, fedvision
from fedgwc.data.sources.cifar import CIFAR10, CIFAR100, COUNTS, Cifar, Kind, read

PartitionFile = Annotated[str | None, "decides the clients: csv of a user split, or json(.gz) of FedGWC's authors (CIFAR-100)"]
Images = Annotated[tuple[int, ...], "train and test images that the files must have; only made data have others"]


def cifar10(
    *,
    seed: options.Seed,
    root: options.Root = None,
    groups: options.Groups = (Group(100, "dirichlet", alpha=0.05),),
    train_size: options.TrainSize = 500,
    test_size: options.TestSize = 100,
    augment: options.Augment = True,
    partition_file: PartitionFile = None,
    images: Images = COUNTS,
) -> Federation:
    """Deal out 60,000 colour images of 32x32 pixels in 10 classes.

    A `partition_file` (csv of a user split) decides the clients. `images` are the train and test images that the files must
    have; only made data have others than the real ones.
    """
    return _federation(CIFAR10, root, groups, train_size, test_size, seed, augment, partition_file, images)


def cifar100(
    *,
    seed: options.Seed,
    root: options.Root = None,
    groups: options.Groups = (Group(100, "dirichlet", alpha=0.5),),
    train_size: options.TrainSize = 500,
    test_size: options.TestSize = 100,
    augment: options.Augment = True,
    partition_file: PartitionFile = None,
    images: Images = COUNTS,
) -> Federation:
    """Deal out 60,000 colour images of 32x32 pixels in 100 classes.

    A `partition_file` decides the clients instead of groups, sizes and seed: one that the authors of FedGWC published
    (json or json.gz), or a csv of a user split (then a seeded fifth of each client's images is its test set).
    `images` as for cifar10.
    """
    return _federation(CIFAR100, root, groups, train_size, test_size, seed, augment, partition_file, images)


def _federation(
    kind: Kind,
    root: str | None,
    groups: tuple[Group, ...],
    train_size: int,
    test_size: int,
    seed: int,
    augment: bool,
    partition_file: str | None,
    images: tuple[int, ...] = COUNTS,
) -> Federation:
    if len(images) != 2 or min(images) < 1:
        raise InputError(f"data.images must be the numbers of train and test images, such as {list(COUNTS)}, got {list(images)}")
    data = read(kind, root, (images[0], images[1]))
    if partition_file is None:
        return federate(data.pool(kind), groups, train_size, test_size, seed, augment=augment)
    path = Path(partition_file).expanduser()
    if not path.is_file():
        raise NotHere(f"there is no partition file {path}; give the path of a .json, .json.gz or .csv file")
    return _by_csv(data, kind, path, seed, augment) if path.suffix == ".csv" else _by_authors(data, kind, path, augment)


def _by_authors(data: Cifar, kind: Kind, path: Path, augment: bool) -> Federation:
    part = authors_partition.read(path, data.names, data.y.numpy(), data.n_train)
    left = len(data.y) - data.n_train - len(part.test.flat)
    notes = (f"the clients are those of {path.name}; {left} test images belong to nobody",)
    return Federation(data.x, data.y, part.train, part.test, kind.n_classes, None, kind.mean, kind.std, augment, kind.name, notes)


def _by_csv(data: Cifar, kind: Kind, path: Path, seed: int, augment: bool) -> Federation:
    """Return the federation of a user split.

    It counts images from 0 in the order of the train files; its class column proves that it means the same ones.
    """
    split = fedvision.read_split(path.read_text(encoding="utf-8"), None, path.name)
    try:
        rows = np.array([int(image) for image in split.images], np.int64)
    except ValueError as error:
        raise InputError(f"{path} has image ids that are no numbers ({error}); is it a split of {kind.name}?") from error
    inside = (rows >= 0) & (rows < data.n_train)
    if not inside.all() or not np.array_equal(data.y.numpy()[rows], split.y):
        raise InputError(f"{path} names other images or classes than this {kind.name}; is it a split of the same set and order?")
    clients = [rows[split.owner == k] for k in range(len(split.users))]
    train, test = split_clients(clients, 0.2, seed, range(len(clients)))
    everyone = np.arange(data.n_train, len(data.y))
    notes = (f"the clients are those of {path.name}; a seeded fifth of each client's images is its test set",)
    about = (kind.n_classes, None, kind.mean, kind.std, augment, kind.name, notes)
    return Federation(data.x, data.y, train, test, *about, everyone, split.users)
