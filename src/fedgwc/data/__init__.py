"""Federations: readers, partitions, domain shifts."""

from __future__ import annotations

from collections.abc import Callable

from fedgwc.data.build import Group, Pool, federate
from fedgwc.data.digits import digits
from fedgwc.data.federation import Federation, Rows, from_arrays
from fedgwc.data.partitions import dirichlet, iid, shards

DATASETS: dict[str, Callable[..., Federation]] = {"digits": digits}

__all__ = ["DATASETS", "Federation", "Group", "Pool", "Rows", "digits", "dirichlet", "federate", "from_arrays", "iid", "shards"]
