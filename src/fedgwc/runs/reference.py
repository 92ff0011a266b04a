"""The reference of settings, made from the code.

A setting's meaning stands at its annotation, `Annotated[float, "..."]`.

`fedgwc list NAME` shows it, and the tables of docs/reference.md are written from it: `python -m fedgwc.runs.reference`.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.search import Between, OneOf
from fedgwc.core.settings import ReadsSettings
from fedgwc.core.work import LocalTraining
from fedgwc.data import DATASETS, PARTITIONS, SHIFTS, Group, Splits
from fedgwc.data.partitions import GIVEN
from fedgwc.engines.settings import EngineSettings
from fedgwc.io.atomic import write_atomically
from fedgwc.models import MODELS
from fedgwc.runs.budget import Evaluate

TABLES: dict[str, Any] = {"local": LocalTraining(), "engine": EngineSettings(), "evaluate": Evaluate()}
FROM_DATA = ("shape", "n_classes")  # arguments of a model that are not for users to set
REQUIRED, UNSET = "required", "–"
_NAMES = {int: "whole number", float: "number", bool: "true, false", str: "text"}


@dataclass(frozen=True)
class Setting:
    name: str
    type: str
    default: str
    meaning: str


def settings_of(thing: Any, left_out: Iterable[str] = ()) -> list[Setting]:
    """List the settings of a dataclass or function.

    An instance has values of its own for defaults; nested ones are `outer.inner`.
    """
    return [s for name, hint, default in _parts(thing) if name not in left_out for s in _settings(name, hint, default)]


def data_settings(build: Any) -> list[Setting]:
    """List a data set's settings; its seed is the run's unless set."""
    own = [dataclasses.replace(s, default="the run's") if s.name == "seed" else s for s in settings_of(build)]
    return [*own, *settings_of(Splits())]


def group_settings() -> list[Setting]:
    """List the settings of every group: its own, then the shifts."""
    shifts = [(name, settings_of(shift, ("samples",))[0]) for name, shift in SHIFTS.items()]
    return [*settings_of(Group), *(dataclasses.replace(s, name=name, default="0") for name, s in shifts)]


def partition_settings(partition: Any) -> list[Setting]:
    """List the further settings of a group with this partition."""
    return settings_of(partition, GIVEN)


def _parts(thing: Any) -> Iterator[tuple[str, Any, Any]]:
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        hints = typing.get_type_hints(type(thing), include_extras=True)
        for f in (f for f in dataclasses.fields(thing) if f.init):
            if f.metadata.get("flat"):
                yield from _parts(getattr(thing, f.name))
            else:
                yield f.name, hints[f.name], getattr(thing, f.name)
        return
    hints = typing.get_type_hints(thing, include_extras=True)
    parameters = [p for p in inspect.signature(thing).parameters.values() if p.kind != p.VAR_KEYWORD]
    yield from ((p.name, hints.get(p.name), p.default) for p in parameters)


def _settings(name: str, hint: Any, default: Any) -> list[Setting]:
    if dataclasses.is_dataclass(default):
        return [dataclasses.replace(s, name=f"{name}.{s.name}") for s in settings_of(default)]
    annotated = typing.get_origin(hint) is Annotated
    bare, *annotations = typing.get_args(hint) if annotated else (hint,)
    meaning = next((text for text in annotations if isinstance(text, str)), "")
    meaning += "".join(f" (`tune`: {search})" for search in annotations if isinstance(search, Between | OneOf))
    return [Setting(name, type_text(bare), REQUIRED if default is inspect.Parameter.empty else value_text(default), meaning)]


def type_text(hint: Any) -> str:
    """Describe the allowed values in words."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return type_text(next(a for a in args if a is not type(None)))
    if origin is Literal:
        return ", ".join(map(str, args))
    if origin is tuple:
        return "list of tables" if dataclasses.is_dataclass(args[0]) else f"list of {type_text(args[0])}s"
    return _NAMES.get(hint, "")


def value_text(value: Any) -> str:
    """Write a value as TOML has it.

    Of a table, what differs from its own defaults.
    """
    if value is None:
        return UNSET
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    if isinstance(value, float):
        return f"{value:g}".replace("e-0", "e-")
    if isinstance(value, tuple):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, ReadsSettings):
        return "{" + ", ".join(f"{k}={value_text(v)}" for k, v in value.to_settings().items()) + "}"
    if dataclasses.is_dataclass(value):
        changed = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if getattr(value, f.name) != f.default}
        return "{" + ", ".join(f"{k}={value_text(v)}" for k, v in changed.items()) + "}"
    return str(value)


# The tables of docs/reference.md


def tables() -> Mapping[str, list[Setting]]:
    """List the settings by the mark of each table in the page."""
    shared = settings_of(ALGORITHMS["fedavg"])
    algorithms = {name: settings_of(ALGORITHMS[name]) for name in ("given", "ifca", "fesem", "cfl", "evidence", "fedgwc", "auto")}
    models = {f"model {name}": settings_of(build, FROM_DATA) for name, build in MODELS.items()}
    every = {
        **{name: settings_of(table) for name, table in TABLES.items()},
        "fedavg": shared,
        **{name: [s for s in settings if s not in shared] for name, settings in algorithms.items()},
        "data": _merged({name: data_settings(build) for name, build in DATASETS.items()}),
        "group": group_settings(),
        "partition": _merged({name: partition_settings(partition) for name, partition in PARTITIONS.items()}),
        **models,
    }
    return {name: settings for name, settings in every.items() if settings}


def _merged(settings_by_name: Mapping[str, list[Setting]]) -> list[Setting]:
    """List the settings of several things once, each with the names of those that have it."""
    every = dict.fromkeys(s for settings in settings_by_name.values() for s in settings)
    having = {s: [name for name, settings in settings_by_name.items() if s in settings] for s in every}
    names = list(settings_by_name)
    return [dataclasses.replace(s, meaning=f"{s.meaning} ({_shorter_list(some, names)})") for s, some in having.items()]


def _shorter_list(names: list[str], every: list[str]) -> str:
    """Name some of all, as a list or as all but a few."""
    without = [name for name in every if name not in names]
    return ", ".join(names) if len(without) >= len(names) else f"all but {', '.join(without)}" if without else "all"


def markdown(settings: Iterable[Setting]) -> str:
    rows = [f"| `{s.name}` | {s.type} | {s.default} | {s.meaning} |\n" for s in settings]
    return "".join(["| key | type | default | meaning |\n|---|---|---|---|\n", *rows])


def with_tables(page: str) -> str:
    """Rewrite the page's tables between their marks."""
    for name, settings in tables().items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
        before, rest = page.split(begin)
        page = before + begin + markdown(settings) + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference.md")
    write_atomically(path, with_tables(path.read_text(encoding="utf-8")).encode())
