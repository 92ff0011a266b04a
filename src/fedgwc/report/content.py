"""The parts of a page, before it becomes HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fedgwc.report.render import Picture


@dataclass(frozen=True)
class Cell:
    text: str
    value: float | None = None  # what to sort by; None: the text
    strong: bool = False

    @property
    def numeric(self) -> bool:
        return self.value is not None


@dataclass(frozen=True)
class Table:
    caption: str
    head: list[str]
    rows: list[list[Cell]]
    sortable: bool = False


Layout = Literal["grid", "pairs", "wide"]  # as many pictures to a line as fit; two; one, with its caption beside it


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    lead: str  # one or two sentences: what to look for
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    parts: tuple[Table, ...] = ()  # small tables that may stand side by side
    note: str = ""  # what was left out, and why
    layout: Layout = "grid"


@dataclass(frozen=True)
class Headline:
    label: str
    value: str
    hint: str = ""


@dataclass(frozen=True)
class Page:
    title: str
    subtitle: str
    headlines: list[Headline]
    sections: list[Section]

    @property
    def pictures(self) -> list[Picture]:
        return [p for s in self.sections for p in s.pictures]


def number(value: Any, digits: int = 2, unit: str = "") -> Cell:
    """Format a number with thin thousands, or a dash where there is none."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        return Cell("–", float("-inf"))
    return Cell(f"{value:z,.{digits}f}{unit}", float(value))


def settings_tables(flat: dict[str, Any]) -> list[Table]:
    """Make one table per part of the configuration.

    "algorithm.beta" is beta in the part algorithm.
    """
    parts: dict[str, list[list[Cell]]] = {}
    for key, value in flat.items():
        part, _, name = key.rpartition(".") if key.count(".") < 2 else key.partition(".")
        parts.setdefault(part or "run", []).append([Cell(name), Cell("–" if value in (None, "", []) else str(value))])
    return [Table(part, ["setting", "value"], rows) for part, rows in parts.items()]
