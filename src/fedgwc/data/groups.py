"""Groups of similar clients, as a recipe describes them."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fedgwc.core.errors import InputError
from fedgwc.core.settings import arguments, convert, did_you_mean, plain
from fedgwc.data.partitions import GIVEN, PARTITIONS, Partition, takes
from fedgwc.data.shifts import SHIFTS

OWN = ("clients", "partition", "train_size", "test_size")  # settings of every group


@dataclass(frozen=True, init=False)
class Group:
    """A group of similar clients.

    `Group(85)` and `Group(15, relabel=1)` make the default federation.

    Beside its own settings a group takes those of its partition (`alpha=0.1`) and any shift with its value (`noise=1.0`).
    """

    clients: Annotated[int, "how many"]
    partition: Annotated[str, "how samples are dealt out to them; its own settings stand beside it"]
    train_size: Annotated[int | None, "training samples per client, or their mean; unset: the federation's"]
    test_size: Annotated[int | None, "test samples per client; unset: the federation's"]
    dealt: Mapping[str, Any]  # the partition's settings, where they are set
    shifts: Mapping[str, Any]  # values of the shifts that are on, in the order in which these are applied

    def __init__(
        self,
        clients: int,
        partition: str = "iid",
        *,
        train_size: int | None = None,
        test_size: int | None = None,
        **settings: Any,
    ) -> None:
        own = {"clients": clients, "partition": partition, "train_size": train_size, "test_size": test_size}
        self._fill({**own, **settings}, "a group")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], where: str) -> Group:
        """Return the group that a table describes; errors name `where`."""
        group = cls.__new__(cls)
        group._fill(settings, where)
        return group

    def to_settings(self) -> dict[str, Any]:
        """Return the recipe's table that describes this group."""
        own = {"clients": self.clients, "partition": None if self.partition == "iid" else self.partition}
        sizes = {"train_size": self.train_size, "test_size": self.test_size}
        return {k: plain(v) for k, v in {**own, **self.dealt, **sizes, **self.shifts}.items() if v is not None}

    def _fill(self, settings: Mapping[str, Any], where: str) -> None:
        given = {k: v for k, v in settings.items() if v is not None}  # json has null for what is not set
        own = arguments(Group, {k: v for k, v in given.items() if k in OWN}, where, "settings")
        partition = PARTITIONS.choose(own.setdefault("partition", "iid"))
        of_partition = [k for k in typing.get_type_hints(partition) if k not in (*GIVEN, "return")]
        others = [k for k in given if k not in (*OWN, *of_partition)]
        _check_known(others, own["partition"], of_partition, where)
        dealt = arguments(partition, {k: v for k, v in given.items() if k in of_partition}, where, *GIVEN)
        values = {k: convert(given[k], _value_type(k), f"{where}.{k}") for k in SHIFTS if k in others}
        shifts = {k: v for k, v in values.items() if v}
        filled = {"train_size": None, "test_size": None, **own, "dealt": dealt, "shifts": shifts}
        for name, value in filled.items():
            object.__setattr__(self, name, value)
        _check_sizes(self, partition, where)


def _value_type(shift: str) -> Any:
    return typing.get_type_hints(SHIFTS[shift])["value"]


def _check_known(keys: Iterable[str], partition: str, of_partition: list[str], where: str) -> None:
    """Check that keys name shifts; say which partitions know others."""
    for key in keys:
        if key in SHIFTS:
            continue
        known = [name for name in PARTITIONS if key in typing.get_type_hints(PARTITIONS[name]) and key not in GIVEN]
        if known:
            have = f"{', '.join(known)} {'has' if len(known) == 1 else 'have'}"
            raise InputError(
                f"{where}: partition {partition} has no setting {key!r}, {have}; set partition={known[0]} or leave {key} out"
            )
        every = [*OWN, *of_partition, *SHIFTS]
        raise InputError(f"{where} has no setting {key!r}{did_you_mean(key, every)}; it knows {', '.join(every)}")


def _check_sizes(group: Group, partition: Partition, where: str) -> None:
    """Check a group's numbers of clients and samples."""
    if group.clients < 1:
        raise InputError(f"{where} needs at least one client, got clients={group.clients}")
    for name in ("train_size", "test_size"):
        size = getattr(group, name)
        if size is not None and not takes(partition, "size"):
            raise InputError(f"{where}: partition {group.partition} decides the sizes itself; leave {name} out")
        if size is not None and size < 1:
            raise InputError(f"{where}.{name} must be at least 1, got {size}; leave it out for the federation's")
