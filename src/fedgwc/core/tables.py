"""Tables of names that users choose from and packages add to.

One line adds an entry, `MODELS["tiny"] = tiny`. An installed package does the same with an entry point of the table's group,
which is loaded when its name is first looked up:

    [project.entry-points."fedgwc.models"]
    tiny = "my_package.models:tiny"
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from fedgwc.core.errors import InputError
from fedgwc.core.settings import did_you_mean

T = TypeVar("T")
log = logging.getLogger("fedgwc")


class UnknownNameError(InputError):
    """A name that no table holds.

    A misspelling, or a user's own entry that was not loaded.
    """


class Table(MutableMapping[str, T], Generic[T]):
    """A dictionary with entries of installed packages.

    Entry points of its `group` are loaded when their name is first looked up.
    """

    def __init__(
        self, what: str, group: str, entries: Mapping[str, T], check: Callable[[str, Any], None] = lambda name, entry: None
    ) -> None:
        self.what, self.group, self.check = what, group, check
        self._entries: dict[str, T] = dict(entries)

    @cached_property
    def _offered(self) -> dict[str, EntryPoint]:
        """Return entry points by name.

        A name that is taken stays with its first owner.
        """
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name in self._entries or point.name in found:
                log.warning("the %s %r of %s is left out: the name is taken", self.what, point.name, point.value)
            else:
                found[point.name] = point
        return found

    def __getitem__(self, name: str) -> T:
        if name not in self._entries and name in self._offered:
            self._entries[name] = self._load(self._offered[name])
        return self._entries[name]

    def _load(self, point: EntryPoint) -> T:
        try:
            entry: T = point.load()
        except Exception as error:  # of somebody else's code
            raise InputError(
                f"the {self.what} {point.name!r} of an installed package cannot be loaded ({point.value}): "
                f"{type(error).__name__}: {error}; repair or uninstall that package"
            ) from error
        self.check(point.name, entry)
        return entry

    def __setitem__(self, name: str, entry: T) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._entries
        yield from (name for name in self._offered if name not in self._entries)

    def __len__(self) -> int:
        return len({*self._entries, *self._offered})

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._offered

    def __repr__(self) -> str:
        return f"Table of {self.what}s: {', '.join(self)}"

    def entered(self) -> dict[str, T]:
        """Return the entries that are loaded.

        Entry points of packages that nobody has looked up are left out.
        """
        return dict(self._entries)

    def restore(self, entries: Mapping[str, T]) -> None:
        """Replace the entries by earlier ones."""
        self._entries = dict(entries)

    def choose(self, name: Any) -> T:
        """Return the entry of a user's name."""
        if not isinstance(name, str):
            raise InputError(f"unknown {self.what} {name!r}; choose from {', '.join(sorted(self))}")
        if name not in self:
            raise UnknownNameError(
                f"unknown {self.what} {name!r}{did_you_mean(name, self)}; choose from {', '.join(sorted(self))}; "
                f"one of your own is entered first, by a command's --use FILE.py"
            )
        return self[name]
