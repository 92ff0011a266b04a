"""Assignments `a.b=c` as users type them, and the nested tables that they change."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from fedgwc.core.errors import InputError

Assignment = str | tuple[tuple[str, ...], Any]  # `a.b=c`, or the path and the value


def parse_assignment(text: Assignment) -> tuple[tuple[str, ...], Any]:
    """Parse `a.b=c` as (("a", "b"), c).

    c is read as TOML, otherwise taken as text; a pair is returned as it is.
    """
    if not isinstance(text, str):
        return text
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise InputError(f"a setting is written key=value, for example rounds=500; got {text!r}")
    return path, parse_value(value.strip())


def parse_value(text: str) -> Any:
    try:
        return _toml(text)
    except tomllib.TOMLDecodeError:
        return text


def _toml(text: str) -> Any:
    try:
        value = tomllib.loads(f"v = {text}")["v"]
        repr(value)  # which a number of many hexadecimal digits refuses, and errors have to show it
    except tomllib.TOMLDecodeError:
        raise
    except (ValueError, RecursionError):
        raise InputError(f"a value has more digits or brackets than can be read; it begins {text[:20]!r}") from None
    return value


def parse_axis(sweep: str) -> tuple[str, list[Any]]:
    """Parse `key=v,v,...` as (key, [v, v, ...]). Each value counts once; `[8],[16,8]` are two lists."""
    key, equals, values = sweep.partition("=")
    if not equals or not values or not key:
        raise InputError(f"a sweep is written key=value,value,..., for example local.lr=0.05,0.1; got {sweep!r}")
    try:
        found = _toml(f"[{values}]")
    except tomllib.TOMLDecodeError:
        found = [parse_value(v) for v in values.split(",")]
    return key, list({repr(v): v for v in found}.values())


def set_path(table: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Copy nested tables with one value set. `groups.1.noise` reaches into a list of tables by number."""
    head, rest = path[0], path[1:]
    copy = dict(table)
    if not rest:
        copy[head] = value
    elif isinstance(copy.get(head), list):
        copy[head] = _set_item(copy[head], rest, value, head)
    else:
        inner = copy.get(head, {})
        if not isinstance(inner, dict):
            raise InputError(f"{head} is a value, not a table, so {'.'.join(path)} cannot be set")
        copy[head] = set_path(inner, rest, value)
    return copy


def drop_path(table: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Copy nested tables without one value, if it is there."""
    head, rest = path[0], path[1:]
    if not rest:
        return {k: v for k, v in table.items() if k != head}
    inner = table.get(head)
    return {**table, head: drop_path(inner, rest)} if isinstance(inner, dict) else dict(table)


def _set_item(items: list[Any], path: tuple[str, ...], value: Any, where: str) -> list[Any]:
    if path[0] not in map(str, range(len(items))):
        raise InputError(f"{where} has entries 0..{len(items) - 1}, got {path[0]!r}")
    i = int(path[0])
    if path[1:] and not isinstance(items[i], dict):
        raise InputError(f"{where}.{i} is a value, not a table, so {'.'.join(path[1:])} of it cannot be set")
    new = set_path(items[i], path[1:], value) if path[1:] else value
    return [*items[:i], new, *items[i + 1 :]]


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables: {"algorithm": {"beta": 1}} -> {"algorithm.beta": 1}."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
