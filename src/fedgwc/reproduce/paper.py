"""The paper's printed values, read from `paper.toml` and checked."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from fedgwc.core.errors import InputError
from fedgwc.core.settings import call
from fedgwc.runs.tables import COLUMNS, Column

OURS = "auto"  # this project's default decides by a rule of its own
FEDGWC = ("fedgwc", "fedgwc-release", OURS)  # the presets that a row of FedGWC may be run with
ACCURACIES = ("balanced_accuracy", "accuracy", "weighted_accuracy")
SCORES = ("clusters", "splits", "was", "wadb", "rand")
METRICS = {c.key: c for c in (*COLUMNS, Column("splits", "splits", digits=1)) if c.key in (*ACCURACIES, *SCORES)}
# How far apart two values may lie and still be the same for all purposes: one point. A count has none.
POINTS = {**dict.fromkeys(ACCURACIES, 1.0), "was": 0.01, "wadb": 0.01, "rand": 0.01}

_PRINTED = re.compile(r"(-?\d+(?:\.(\d+))?)(?: ± (\d+(?:\.\d+)?))?")


@dataclass(frozen=True)
class Value:
    """A number as printed, in the units of its metric."""

    text: str
    mean: float
    std: float | None
    resolution: float  # half of the last printed digit


def printed(text: str) -> Value:
    """Read `53.4 ± 0.4` or `4` as a value."""
    found = _PRINTED.fullmatch(text)
    if found is None:
        raise InputError(f"a printed value is written 53.4 ± 0.4 or 4, got {text!r}")
    mean, decimals, std = found.groups()
    return Value(text, float(mean), None if std is None else float(std), 0.5 * 10.0 ** -len(decimals or ""))


@dataclass(frozen=True)
class Row:
    """A method on a recipe, with the values that the paper reports."""

    recipe: str
    algorithm: str
    set: tuple[str, ...] = ()  # settings that tell it from the recipe's own
    balanced_accuracy: str | None = None
    accuracy: str | None = None
    clusters: str | None = None
    splits: str | None = None
    was: str | None = None
    wadb: str | None = None
    rand: str | None = None

    def __post_init__(self) -> None:
        if len([m for m in ACCURACIES if m in self.values]) > 1:
            raise InputError(f"{self.recipe} {self.algorithm}: the paper names one accuracy, not several")

    @property
    def values(self) -> dict[str, Value]:
        """Return the paper's values by metric."""
        texts = {metric: getattr(self, metric, None) for metric in METRICS}
        return {metric: printed(text) for metric, text in texts.items() if text is not None}

    @property
    def named(self) -> str | None:
        """Return the accuracy that the paper names, if it reports one."""
        return next((m for m in ACCURACIES if m in self.values), None)

    @property
    def presets(self) -> tuple[str, ...]:
        return FEDGWC if self.algorithm == "fedgwc" else (self.algorithm,)


@dataclass(frozen=True)
class Entry:
    """A table or a figure."""

    where: str
    about: str
    rows: tuple[Row, ...]
    pictures: tuple[str, ...] = ()  # of a figure: names of the report's pictures, as patterns


@cache
def paper() -> dict[str, Entry]:
    """Return every table and figure by its name for `fedgwc reproduce`."""
    text = (resources.files("fedgwc") / "reproduce" / "paper.toml").read_text(encoding="utf-8")
    return {name: call(Entry, table, name) for name, table in tomllib.loads(text).items()}


@cache
def varied() -> frozenset[str]:
    """List the settings that distinguish the paper's rows."""
    return frozenset(setting.partition("=")[0] for row in all_rows() for setting in row.set)


def all_rows() -> Iterator[Row]:
    return (row for entry in paper().values() for row in entry.rows)
