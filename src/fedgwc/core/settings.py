"""Settings: plain tables (TOML, JSON, `--set a.b=c`) as typed values.

Errors name the key and what it allows.

Frozen dataclasses and keyword functions describe themselves by their annotations; there is no second schema.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, runtime_checkable

from fedgwc.core.errors import InputError

T = TypeVar("T")
BITS = 63  # whole numbers are below 2 to this power, as in TOML: arrays cannot count further
LARGEST = 3e38  # numbers are as large as this at most, or infinite: models are computed in 32 bits


@runtime_checkable
class ReadsSettings(Protocol):
    """A dataclass that reads and writes its own settings.

    Its table also holds settings of the parts that it chooses by name.
    """

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], where: str) -> Any:
        """Build an instance from a table of settings. Errors name `where` the table stands."""
        ...

    def to_settings(self) -> dict[str, Any]:
        """Return the instance as a table of settings."""
        ...


def convert(value: Any, hint: Any, where: str) -> Any:
    """Convert a value to the type of an annotation. A value that does not fit is an InputError that names `where`."""
    if isinstance(value, int) and not -(2**BITS) <= value < 2**BITS:  # first, since Python does not even print the longest
        raise InputError(f"{where} must be in -2^{BITS}..2^{BITS}-1, got a number of {value.bit_length()} bits")
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else convert(value, next(a for a in args if a is not type(None)), where)
    if origin is typing.Literal:
        if value not in args:
            raise InputError(f"{where} must be one of {', '.join(map(repr, args))}; got {value!r}{did_you_mean(value, args)}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} must be a list, got {value!r}")
        return tuple(convert(v, args[0], f"{where}[{i}]") for i, v in enumerate(value))
    if dataclasses.is_dataclass(hint):
        if isinstance(value, typing.cast(type, hint)):
            return value
        if isinstance(hint, type) and issubclass(hint, ReadsSettings) and isinstance(value, Mapping):
            return hint.from_settings(value, where)
        return call(typing.cast(type, hint), value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise InputError(f"{where} must be {_NAMES.get(hint, hint)}, got {value!r}")
    if hint is float and value != value:
        raise InputError(f"{where} must be a number, got nan")
    if hint is float and LARGEST < abs(value) < math.inf:
        raise InputError(f"{where} must be within ±{LARGEST:g}, what fits into 32 bits, got {value}")
    return value


_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def call(function: Callable[..., T], settings: Any, where: str, **given: Any) -> T:
    """Call a function with checked and converted settings. `given` are arguments that users cannot set."""
    return function(**given, **arguments(function, settings, where, *given))


def arguments(function: Callable[..., Any], settings: Any, where: str, *given: str) -> dict[str, Any]:
    """Check and convert the settings of a function. `given` are the names of arguments that users cannot set."""
    if not isinstance(settings, Mapping):
        raise InputError(f"{where} must be a table of settings, got {settings!r}")
    target = function.__init__ if inspect.isclass(function) else function
    hints = typing.get_type_hints(target)
    parameters = {k: p for k, p in inspect.signature(function).parameters.items() if k not in given}
    check_keys(settings, parameters, where)
    missing = [k for k, p in parameters.items() if p.default is inspect.Parameter.empty and k not in settings]
    if missing:
        raise InputError(f"{where} needs {', '.join(missing)}")
    return {k: convert(v, hints[k], f"{where}.{k}") for k, v in settings.items()}


def check_settable(thing: Any, where: str, *given: str) -> None:
    """Check that settings can call a function or override a dataclass. Only annotations make that possible."""
    made = type(thing) if dataclasses.is_dataclass(thing) and not isinstance(thing, type) else thing
    if not inspect.isfunction(made) and not inspect.isclass(made):
        raise InputError(f"{where} must be a function or a class, got {thing!r}")
    try:
        hints = typing.get_type_hints(made.__init__ if inspect.isclass(made) and not dataclasses.is_dataclass(made) else made)
    except NameError as error:
        raise InputError(f"{where}: its annotations cannot be read: {error}") from None
    parameters = inspect.signature(made).parameters
    if lacking := [name for name in given if name not in parameters]:
        raise InputError(f"{where} must take {', '.join(given)}; it lacks {', '.join(lacking)}")
    flat = {f.name for f in dataclasses.fields(made) if f.metadata.get("flat")} if dataclasses.is_dataclass(made) else set()
    for name, parameter in parameters.items():
        if name in flat:
            check_settable(getattr(thing, name), where)
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InputError(f"{where} takes {parameter}, which would let slips pass; name what can be set")
        if name not in given and not _can_be_set(hints.get(name)):
            came = f"as {parameter}" if name in hints else "without"
            raise InputError(f"{where}: annotate {name} with {SETTABLE}, so that settings can be checked; it came {came}")


SETTABLE = "int, float, bool, str, a Literal, tuple[one of these, ...], a dataclass of these, or one of these | None"


def _can_be_set(hint: Any) -> bool:
    """Tell whether `convert` supports an annotation."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        others = [a for a in args if a is not type(None)]
        return len(others) == 1 and _can_be_set(others[0])
    if origin is tuple:
        return args[1:] == (...,) and _can_be_set(args[0])
    if isinstance(hint, type) and issubclass(hint, ReadsSettings):
        return True
    if dataclasses.is_dataclass(hint):
        return all(map(_can_be_set, typing.get_type_hints(hint).values()))
    return origin is typing.Literal or hint in _NAMES


def defaults(function: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of the arguments that settings leave out."""
    known = inspect.signature(function).parameters.items()
    return {k: plain(p.default) for k, p in known if p.default is not inspect.Parameter.empty and k not in settings}


FLAT = MappingProxyType({"flat": True})  # metadata of a field whose own settings are set beside those of its owner


def setting_names(instance: Any) -> list[str]:
    """List the settings of a dataclass instance, including flat fields."""
    names: list[str] = []
    for field in _settable(instance):
        names += setting_names(getattr(instance, field.name)) if field.metadata.get("flat") else [field.name]
    return names


def _settable(instance: Any) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(instance) if f.init]


def override(instance: T, settings: Any, where: str) -> T:
    """Replace some fields of a dataclass instance. A table for a field that is itself a dataclass goes one level down."""
    if not isinstance(settings, Mapping):
        raise InputError(f"{where} must be a table of settings, got {settings!r}")
    check_keys(settings, setting_names(instance), where)
    hints = typing.get_type_hints(type(instance))
    new: dict[str, Any] = {}
    for field in _settable(instance):
        old = getattr(instance, field.name)
        if field.metadata.get("flat"):
            if inner := {key: value for key, value in settings.items() if key in setting_names(old)}:
                new[field.name] = override(old, inner, where)
        elif field.name in settings:
            value, place = settings[field.name], f"{where}.{field.name}"
            nested = dataclasses.is_dataclass(old) and isinstance(value, Mapping)
            new[field.name] = override(old, value, place) if nested else convert(value, hints[field.name], place)
    return dataclasses.replace(instance, **new)  # type: ignore[type-var]


def lookup(table: Mapping[str, T], name: Any, what: str) -> T:
    """Return an entry of a table of names."""
    if not isinstance(name, str) or name not in table:
        raise InputError(f"unknown {what} {name!r}{did_you_mean(name, table)}; choose from {', '.join(sorted(table))}")
    return table[name]


def folder_name(name: str, what: str) -> str:
    """Check that a name can be the name of a folder."""
    if name in ("", ".", "..") or any(c in name for c in "/\\") or not name.isprintable():
        raise InputError(f"{what} {name!r} cannot be the name of a folder; choose one of printable characters without / and \\")
    return name


def check_keys(settings: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    known = list(known)
    for key in settings:
        if key not in known:
            allowed = f"it knows {', '.join(known)}" if known else "it takes none"
            raise InputError(f"{where} has no setting {key!r}{did_you_mean(key, known)}; {allowed}")


def did_you_mean(name: Any, known: Iterable[Any]) -> str:
    near = difflib.get_close_matches(str(name), [str(k) for k in known], 1)
    return f" (did you mean {near[0]}?)" if near else ""


def plain(value: Any) -> Any:
    """Turn dataclasses and tuples into tables and lists, for JSON. `override` is the reverse."""
    if isinstance(value, ReadsSettings):
        return value.to_settings()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        table: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            inner = plain(getattr(value, field.name))
            table |= inner if field.metadata.get("flat") else {field.name: inner}
        return table
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value
