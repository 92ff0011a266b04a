"""Search spaces: the values of a setting that tuning tries, declared beside the setting.

    lr: Annotated[float, "learning rate", Between(0.001, 1.0, log=True)] = 0.01

A setting is searched where the method's own value lies in the space. A value outside stands for something else, such as 0 for
off: FedAvgM's momentum of 0.9 is searched, and FedAvg's of 0 is not.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass
from typing import Any

from fedgwc.core.assignments import parse_value
from fedgwc.core.errors import InputError


@dataclass(frozen=True)
class Between:
    """All numbers from `low` to `high`; whole ones if both are.

    >>> 3 in Between(2, 8), 0.0 in Between(1e-4, 1.0, log=True)
    (True, False)
    """

    low: float
    high: float
    log: bool = False  # every factor is equally likely, not every difference

    def __post_init__(self) -> None:
        if not (self.low < self.high and math.isfinite(self.low) and math.isfinite(self.high)):
            raise InputError(f"a range goes from a lower to a higher number, got {self}")
        if self.log and self.low <= 0:
            raise InputError(f"a logarithmic range begins above 0, got {self}")

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{'log:' if self.log else ''}{self.low:g}..{self.high:g}"

    @property
    def is_whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[Any, ...]:
        """Return the values that must be allowed for all others to be."""
        return self.low, self.high

    def nearest(self, value: Any) -> Any:
        """Return the nearest value of the range, or its lowest to what is no number."""
        return min(max(value, self.low), self.high) if isinstance(value, int | float) else self.low

    def like(self, value: Any) -> Between:
        """Return the range with fractions if a setting's value has them."""
        return dataclasses.replace(self, low=float(self.low), high=float(self.high)) if isinstance(value, float) else self


@dataclass(frozen=True)
class OneOf:
    """A choice among a few values."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise InputError("a choice needs at least one value")

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return ",".join(map(str, self.values))

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.values

    def nearest(self, value: Any) -> Any:
        return value if value in self.values else self.values[0]

    def like(self, value: Any) -> OneOf:
        return self


Search = Between | OneOf


def parse_search(text: str) -> Search:
    """Read a space as users type it: LOW..HIGH, log:LOW..HIGH, or VALUE,VALUE,...

    >>> parse_search("2..8"), parse_search("plain,weighted")
    (Between(low=2, high=8, log=False), OneOf(values=('plain', 'weighted')))
    """
    written = text.strip()
    bare = written.removeprefix("log:")
    low, dots, high = bare.partition("..")
    if dots:
        ends = parse_value(low.strip()), parse_value(high.strip())
        if all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
            return Between(*ends, log=bare != written)
    elif written and bare == written:
        return OneOf(tuple({repr(v): v for v in map(parse_value, map(str.strip, written.split(",")))}.values()))
    raise InputError(f"a space is written LOW..HIGH, log:LOW..HIGH or VALUE,VALUE,..., such as log:0.01..1; got {text!r}")


def declared(thing: Any, prefix: str = "") -> dict[str, tuple[Search, Any]]:
    """List the settings of a dataclass instance that declare a space, with their values."""
    hints = typing.get_type_hints(type(thing), include_extras=True)
    found: dict[str, tuple[Search, Any]] = {}
    for field in (f for f in dataclasses.fields(thing) if f.init):
        value, key = getattr(thing, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            found |= declared(value, prefix if field.metadata.get("flat") else f"{key}.")
        for note in getattr(hints[field.name], "__metadata__", ()):
            if isinstance(note, Between | OneOf):
                found[key] = note, value
    return found
