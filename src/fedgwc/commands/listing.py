"""`fedgwc list`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any

from fedgwc.algorithms import ABOUT, ALGORITHMS
from fedgwc.data import DATASETS
from fedgwc.experiment import recipes
from fedgwc.models import MODELS


def list_command() -> None:
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    console.print("[bold]Recipes[/] (fedgwc run NAME)")
    for name, path in sorted(recipes().items()):
        console.print(f"  {name:24} {tomllib.loads(path.read_text(encoding='utf-8')).get('about', '')}", markup=False)
    console.print("[bold]Algorithms[/] (--set algorithm.name=NAME)")
    for name, algorithm in ALGORITHMS.items():
        console.print(f"  {name:24} {ABOUT.get(name) or _first_line(type(algorithm))}", markup=False)
    for title, table in (("Data sets", DATASETS), ("Models", MODELS)):
        console.print(f"[bold]{title}[/]")
        for name, function in table.items():
            console.print(f"  {name:24} {_first_line(function)}", markup=False)


def _first_line(thing: Callable[..., Any]) -> str:
    return next(iter((thing.__doc__ or "").strip().splitlines()), "")
