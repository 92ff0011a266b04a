"""Partitions: ways to deal samples out to clients, one a file.

Each sample goes to one client at most.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedgwc.core.errors import InputError
from fedgwc.core.settings import check_settable
from fedgwc.core.tables import Table
from fedgwc.core.types import Ids
from fedgwc.data.partitions.classes import classes
from fedgwc.data.partitions.dirichlet import dirichlet
from fedgwc.data.partitions.dirichlet_per_class import dirichlet_per_class
from fedgwc.data.partitions.file import from_file
from fedgwc.data.partitions.iid import iid
from fedgwc.data.partitions.label_quantity import label_quantity
from fedgwc.data.partitions.natural import natural
from fedgwc.data.partitions.quantity import quantity, quantity_lognormal
from fedgwc.data.partitions.shards import shards

Partition = Callable[..., list[Ids]]

# What a partition is given, if it takes an argument of this name. Its other arguments are its settings.
#   labels     [R] the classes of the samples that can be dealt out
#   rows       [R] where these samples stand in the data set
#   pool       the whole data set
#   n_clients  how many clients there are
#   size       samples per client; where the partition decides the sizes, their mean
#   seed       what all random draws follow from
# It returns positions among the R samples, one array for each client. From what it takes follows how test sets are made:
#   labels     they get the class shares of training sets
#   size only  they are drawn at random
#   no size    the partition deals training and test samples at once, and decides all sizes
GIVEN = ("labels", "rows", "pool", "n_clients", "size", "seed")


def takes(partition: Partition, name: str) -> bool:
    """Return whether a partition is given the argument of this name."""
    return name in GIVEN and name in inspect.signature(partition).parameters


def check_partition(name: str, partition: Partition) -> None:
    """Check that a recipe can set a partition."""
    check_settable(partition, f"partition {name}", "n_clients", *(given for given in GIVEN if takes(partition, given)))


PARTITIONS: Table[Partition] = Table(
    "partition",
    "fedgwc.partitions",
    {
        "iid": iid,
        "dirichlet": dirichlet,
        "dirichlet-per-class": dirichlet_per_class,
        "shards": shards,
        "classes": classes,
        "quantity": quantity,
        "quantity-lognormal": quantity_lognormal,
        "label-quantity": label_quantity,
        "natural": natural,
        "file": from_file,
    },
    check_partition,
)


def deal(name: str, settings: Mapping[str, Any], **given: Any) -> list[Ids]:
    """Deal samples by a partition, and check what it dealt.

    Each sample goes to one client at most, and every client has some.
    """
    partition = PARTITIONS.choose(name)
    dealt = partition(**{key: value for key, value in given.items() if takes(partition, key)}, **settings)
    if len(dealt) != given["n_clients"]:
        raise InputError(f"partition {name} dealt to {len(dealt)} clients and was asked for {given['n_clients']}; correct it")
    if empty := [k for k, mine in enumerate(dealt) if not len(mine)]:
        raise InputError(
            f"partition {name} leaves client {empty[0]} of its group without a sample ({len(empty)} such clients); "
            "take fewer clients or a larger train_size"
        )
    held = np.concatenate(dealt)
    if len(np.unique(held)) < len(held):
        raise InputError(f"partition {name} deals a sample to two clients; each may be used once")
    return dealt


__all__ = ["GIVEN", "PARTITIONS", "Partition", "check_partition", "deal", "takes"]
