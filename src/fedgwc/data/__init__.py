"""Federations: readers, partitions, domain shifts."""

from __future__ import annotations

from collections.abc import Callable

from fedgwc.data.arrays import arrays
from fedgwc.data.build import Group, Pool, federate
from fedgwc.data.cifar_sets import cifar10, cifar100
from fedgwc.data.digits import digits
from fedgwc.data.emnist import emnist, mnist
from fedgwc.data.federation import Federation, from_arrays
from fedgwc.data.fedvision import inaturalist, landmarks
from fedgwc.data.leaf import leaf_femnist
from fedgwc.data.partitions import dirichlet, iid, shards
from fedgwc.data.rows import Rows

DATASETS: dict[str, Callable[..., Federation]] = {
    "digits": digits,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "emnist": emnist,
    "mnist": mnist,
    "leaf_femnist": leaf_femnist,
    "landmarks": landmarks,
    "inaturalist": inaturalist,
    "arrays": arrays,
}

__all__ = ["DATASETS", "Federation", "Group", "Pool", "Rows", "digits", "dirichlet", "federate", "from_arrays", "iid", "shards"]
