"""`fedgwc list`: recipes, algorithms, data sets and models, and their settings."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from typing import Any

from fedgwc.algorithms import ABOUT, ALGORITHMS, LOCAL
from fedgwc.core.errors import InputError
from fedgwc.core.settings import did_you_mean
from fedgwc.data import DATASETS, PARTITIONS, SHIFTS
from fedgwc.models import MODELS
from fedgwc.runs.experiment import recipes
from fedgwc.runs.reference import FROM_DATA, TABLES, Setting, data_settings, group_settings, partition_settings, settings_of
from fedgwc.runs.tables import Table, show

CHOSEN: dict[str, Sequence[str]] = {"data": tuple(DATASETS), "model": tuple(MODELS), "algorithm": tuple(ALGORITHMS)}


def list_command(name: str | None = None) -> None:
    if name is None:
        _overview()
        return
    shown = [
        show_one(name) for show_one in (_recipe, _algorithm, _data_set, _partition, _model, _table)
    ]  # digits is a recipe and data
    if not any(shown):
        every_name = [*recipes(), *ALGORITHMS, *DATASETS, *PARTITIONS, *MODELS, *TABLES, *CHOSEN]
        raise InputError(f"nothing is called {name!r}{did_you_mean(name, every_name)}; `fedgwc list` has the names")


def _overview() -> None:
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    console.print("[bold]Recipes[/] (fedgwc run NAME)")
    for name, path in sorted(recipes().items()):
        console.print(f"  {name:24} {tomllib.loads(path.read_text(encoding='utf-8')).get('about', '')}", markup=False)
    console.print("[bold]Algorithms[/] (--set algorithm.name=NAME)")
    for name, algorithm in ALGORITHMS.items():
        console.print(f"  {name:24} {ABOUT.get(name) or _first_line(type(algorithm))}", markup=False)
    for title, table in (("Data sets", DATASETS), ("Partitions", PARTITIONS), ("Shifts", SHIFTS), ("Models", MODELS)):
        console.print(f"[bold]{title}[/]")
        for name, function in table.items():
            console.print(f"  {name:24} {_first_line(function)}", markup=False)
    console.print(f"\nThe settings of any of these, or of a recipe's table ({', '.join(TABLES)}): fedgwc list NAME")


def _first_line(thing: Callable[..., Any]) -> str:
    text = thing.__doc__ or ""
    if text.startswith(f"{thing.__name__}("):  # a dataclass without words of its own gets its signature
        return ""
    return next(iter(text.strip().splitlines()), "")


def _recipe(name: str) -> bool:
    if name not in recipes():
        return False
    path = recipes()[name]
    print(f"Recipe {name} (fedgwc run {name}), {path}:\n\n{path.read_text(encoding='utf-8')}")
    return True


def _algorithm(name: str) -> bool:
    if name not in ALGORITHMS:
        return False
    preset = ALGORITHMS[name]
    about = ABOUT.get(name) or _first_line(type(preset))
    _section(f"Algorithm {name}", about, f"{name}.KEY=VALUE or algorithm", settings_of(preset))
    if name in LOCAL:
        print(f"It also sets {', '.join(f'local.{k}={v}' for k, v in LOCAL[name].items())}.\n")
    return True


def _data_set(name: str) -> bool:
    if name not in DATASETS:
        return False
    settings = data_settings(DATASETS[name])
    _section(f"Data set {name}", _first_line(DATASETS[name]), "data", settings)
    if any(s.name == "groups" for s in settings):
        _section("A group", "One of the tables in data.groups; the first is groups.0.", "data.groups.0", group_settings())
    return True


def _partition(name: str) -> bool:
    if name not in PARTITIONS:
        return False
    about = f"{_first_line(PARTITIONS[name])} Of a group: data.groups.0.partition={name}."
    _section(f"Partition {name}", about, "data.groups.0", partition_settings(PARTITIONS[name]))
    return True


def _model(name: str) -> bool:
    if name not in MODELS:
        return False
    _section(f"Model {name}", _first_line(MODELS[name]), "model", settings_of(MODELS[name], FROM_DATA))
    return True


def _table(name: str) -> bool:
    if name in CHOSEN:
        print(f"{name}.name is one of {', '.join(CHOSEN[name])}; `fedgwc list NAME` has the settings of each.")
    elif name in TABLES:
        _section(f"Table {name}", _first_line(type(TABLES[name])), name, settings_of(TABLES[name]))
    return name in CHOSEN or name in TABLES


def _section(title: str, about: str, table: str, settings: Sequence[Setting]) -> None:
    """Print one table of settings."""
    print(f"{title}: {about}".removesuffix(": ") + "\n" + (f"--set {table}.KEY=VALUE\n" if settings else "It has no settings.\n"))
    if settings:
        show(Table(["key", "type", "default", "meaning"], [[s.name, s.type, s.default, s.meaning] for s in settings]))
        print()
