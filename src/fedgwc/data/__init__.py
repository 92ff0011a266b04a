"""Federations: data sets, partitions, shifts."""

from __future__ import annotations

from collections.abc import Callable

from fedgwc.core.settings import check_settable
from fedgwc.core.tables import Table
from fedgwc.data.build import federate
from fedgwc.data.federation import Federation, from_arrays
from fedgwc.data.groups import Group
from fedgwc.data.partitions import PARTITIONS
from fedgwc.data.pool import Pool
from fedgwc.data.rows import Rows
from fedgwc.data.shifts import SHIFTS
from fedgwc.data.sources.arrays import arrays
from fedgwc.data.sources.cifar_sets import cifar10, cifar100
from fedgwc.data.sources.digits import digits
from fedgwc.data.sources.emnist import emnist, mnist
from fedgwc.data.sources.fedvision import inaturalist, landmarks
from fedgwc.data.sources.leaf import leaf_femnist
from fedgwc.data.sources.made import made
from fedgwc.data.splits import Splits, hold_out

DATASETS: Table[Callable[..., Federation]] = Table(
    "data set",
    "fedgwc.datasets",
    {
        "digits": digits,
        "made": made,
        "cifar10": cifar10,
        "cifar100": cifar100,
        "emnist": emnist,
        "mnist": mnist,
        "leaf_femnist": leaf_femnist,
        "landmarks": landmarks,
        "inaturalist": inaturalist,
        "arrays": arrays,
    },
    lambda name, build: check_settable(build, f"data set {name}", "seed"),
)

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "SHIFTS",
    "Federation",
    "Group",
    "Pool",
    "Rows",
    "Splits",
    "digits",
    "federate",
    "from_arrays",
    "hold_out",
]
