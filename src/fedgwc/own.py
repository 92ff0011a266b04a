"""Algorithms, models and data sets of one's own: Python files that enter them in the tables, loaded because the user said so.

`--use` and the variable FEDGWC_USE are the only ways in. What a recipe or a run folder names is looked up and never loaded:
these come from others.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from fedgwc.errors import InputError
from fedgwc.settings import lookup

VARIABLE = "FEDGWC_USE"  # the files for every command, and how processes that a command starts learn of them
PREFIX = "fedgwc_own_"  # of modules made of files, so that no file takes the place of a library
T = TypeVar("T")


class UnknownNameError(InputError):
    """A name that is in no table: a slip, or something of the user's own that was not loaded."""


def known(table: Mapping[str, T], name: Any, what: str) -> T:
    """An entry of ALGORITHMS, MODELS or DATASETS."""
    try:
        return lookup(table, name, what)
    except InputError as error:
        if not isinstance(name, str):  # none was given
            raise
        raise UnknownNameError(f"{error}; one of your own is made known by --use FILE.py") from None


def use(names: Iterable[str] = ()) -> None:
    """Load these files (or installed modules) and those of FEDGWC_USE, each once."""
    before = [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    every = list(dict.fromkeys(map(_absolute, [*before, *names])))
    for name in every:
        _load(name)
    if every:
        os.environ[VARIABLE] = os.pathsep.join(every)


def _absolute(name: str) -> str:
    return str(Path(name).expanduser().resolve()) if name.endswith(".py") else name


def _load(name: str) -> None:
    module = PREFIX + Path(name).stem if name.endswith(".py") else name
    if module in sys.modules:
        _refuse_namesake(name, sys.modules[module])
        return
    before = _tables()
    try:
        _of_file(Path(name), module) if name.endswith(".py") else importlib.import_module(name)
    except InputError:
        raise
    except Exception as error:
        sys.modules.pop(module, None)
        raise InputError(f"--use {name} cannot be loaded: {type(error).__name__}: {error}{_place(error)}") from error
    _check(name, before, _tables())


def _of_file(path: Path, module: str) -> None:
    if not path.is_file():
        raise InputError(f"--use: there is no {path}; give a Python file, FILE.py, or the name of an installed module")
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise InputError(f"--use {path} is not a Python file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last: its neighbours can be imported, and take no library's place
    made = sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)


def _refuse_namesake(name: str, module: ModuleType) -> None:
    if name.endswith(".py") and module.__file__ != name:
        raise InputError(f"--use {name} and {module.__file__} have the same name; rename one of them")


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _tables() -> dict[str, dict[str, Any]]:
    from fedgwc.algorithms import ALGORITHMS
    from fedgwc.data import DATASETS
    from fedgwc.models import MODELS

    return {"ALGORITHMS": dict(ALGORITHMS), "MODELS": dict(MODELS), "DATASETS": dict(DATASETS)}


def _check(name: str, before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> None:
    """That it entered something, under names of its own: results must not go under the name of something else."""
    if before == after:
        raise InputError(
            f'--use {name} enters nothing in a table; it should say fedgwc.ALGORITHMS["NAME"] = ..., '
            f'fedgwc.models.MODELS["NAME"] = ... or fedgwc.data.DATASETS["NAME"] = ...'
        )
    for table, entries in before.items():
        if changed := [key for key, entry in entries.items() if after[table].get(key) is not entry]:
            raise InputError(f"--use {name} changes {changed[0]} in {table}, which is there already; choose another name")
    for key in after["ALGORITHMS"].keys() - before["ALGORITHMS"].keys():
        _check_algorithm(name, key, after["ALGORITHMS"][key])
    for table in ("MODELS", "DATASETS"):
        for key in after[table].keys() - before[table].keys():
            if not callable(after[table][key]):
                raise InputError(f"--use {name}: {key} in {table} must be a function, got {after[table][key]!r}")


def _check_algorithm(name: str, key: str, algorithm: Any) -> None:
    if isinstance(algorithm, type):
        raise InputError(f"--use {name}: {key} in ALGORITHMS is a class; enter an instance, {algorithm.__name__}()")
    lacking = [method for method in ("init", "round", "clustering") if not callable(getattr(algorithm, method, None))]
    if lacking or not dataclasses.is_dataclass(algorithm):
        what = f"has no {', '.join(lacking)}" if lacking else "is no dataclass"
        raise InputError(
            f"--use {name}: {key} in ALGORITHMS {what}; an algorithm is a frozen dataclass with init, round, clustering"
        )
