"""Help for positional arguments."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from typing import Any

import typer
from typer.models import ArgumentInfo


def described(app: typer.Typer) -> Any:
    """Return the command of `app` with help for its arguments.

    From click 8.5 on its arguments lose the help that typer before 0.21 gives them; here it is back.
    """
    top = typer.main.get_command(app)
    for _, command in every_command(top):
        if command.callback is None:
            continue
        hints = typing.get_type_hints(inspect.unwrap(command.callback), include_extras=True)
        for parameter in command.params:
            for given in typing.get_args(hints.get(parameter.name)):
                if isinstance(given, ArgumentInfo):
                    parameter.help = given.help
    return top


def every_command(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command with its words: `deploy init`."""
    yield name, command
    for key, inner in getattr(command, "commands", {}).items():
        yield from every_command(inner, f"{name} {key}".strip())
