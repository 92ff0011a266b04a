"""Federations: readers, partitions, domain shifts."""

from __future__ import annotations

from collections.abc import Callable

from fedgwc.data.build import Group, Pool, federate
from fedgwc.data.federation import Federation, from_arrays
from fedgwc.data.partitions.draws import dirichlet, iid, shards
from fedgwc.data.rows import Rows
from fedgwc.data.sources.arrays import arrays
from fedgwc.data.sources.cifar_sets import cifar10, cifar100
from fedgwc.data.sources.digits import digits
from fedgwc.data.sources.emnist import emnist, mnist
from fedgwc.data.sources.fedvision import inaturalist, landmarks
from fedgwc.data.sources.leaf import leaf_femnist

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
