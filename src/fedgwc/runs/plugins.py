"""Plugins: the user's own algorithms, models and data sets.

Python files that enter them in the tables, loaded because the user said so.

`--use`, the variable FEDGWC_USE and the app of a federation, which is code itself, are the only ways in. What a recipe or a run
folder names is looked up and never loaded: these come from others.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from fedgwc.core.errors import InputError
from fedgwc.core.settings import lookup
from fedgwc.core.tables import Table, UnknownNameError

VARIABLE = "FEDGWC_USE"  # the files for every command, and how processes that a command starts learn of them
PREFIX = "fedgwc_own_"  # of modules made of files, so that no file takes the place of a library
NAME = re.compile(r"[A-Za-z0-9][\w-]*")  # names become parts of folders and of keys as in `--set NAME.key=value`
TAKEN = ("format", "rounds", "seed", "recipe", "about", "data", "model", "local", "algorithm", "engine", "evaluate", "all")
T = TypeVar("T")


def entry_named(table: Mapping[str, T], name: Any, what: str) -> T:
    """Return the entry of ALGORITHMS, MODELS or DATASETS that a user has named."""
    try:
        return lookup(table, name, what)
    except InputError as error:
        if not isinstance(name, str):  # none was given
            raise
        raise UnknownNameError(f"{error}; one of your own is entered first, by a command's --use FILE.py") from None


@contextmanager
def plugins_loaded(names: Iterable[str]) -> Iterator[None]:
    """Load these files and those of FEDGWC_USE, for child processes too."""
    before = os.environ.get(VARIABLE)
    every = use(names)
    try:
        os.environ[VARIABLE] = os.pathsep.join(every)
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


def use(names: Iterable[str] = ()) -> list[str]:
    """Load these files (or installed modules) and those of FEDGWC_USE.

    Each once; returns all of them.
    """
    every = list(dict.fromkeys(map(_absolute_path, [*plugin_files(), *names])))
    for name in every:
        _load(name)
    return every


def plugin_files() -> list[str]:
    """Return the files of FEDGWC_USE; within a command also those of --use."""
    return [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def _absolute_path(name: str) -> str:
    full = str(Path(name).expanduser().resolve()) if name.endswith(".py") else name
    if os.pathsep in full:
        raise InputError(f"--use {full}: a path with {os.pathsep!r} cannot be passed on to other processes; rename it")
    return full


def _load(name: str) -> None:
    """Load a plugin; one that is refused leaves no trace."""
    module = PREFIX + Path(name).stem if name.endswith(".py") else name
    if module in sys.modules:
        _refuse_namesake(name, sys.modules[module])
        return
    before = {name: table.entered() for name, table in _tables().items()}
    try:
        _of_file(Path(name), module) if name.endswith(".py") else importlib.import_module(name)
        _check(name, before, _tables())
    except BaseException as error:
        sys.modules.pop(module, None)
        for entered, table in zip(before.values(), _tables().values(), strict=True):
            table.restore(entered)
        if isinstance(error, InputError) or not isinstance(error, Exception):
            raise
        raise InputError(f"--use {name} cannot be loaded: {type(error).__name__}: {error}{_line_of(error)}") from error


def _of_file(path: Path, module: str) -> None:
    if not path.is_file():
        raise InputError(f"--use: there is no {path}; give a Python file, FILE.py, or the name of an installed module")
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise InputError(f"--use {path} is not a Python file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last: its neighbours can be imported, and take no library's place
    loaded = sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)


def _refuse_namesake(name: str, module: ModuleType) -> None:
    """Refuse other code under a loaded file's name.

    A file may have been copied, into a federation's app.
    """
    loaded = module.__file__ or ""
    if name.endswith(".py") and loaded != name and Path(loaded).read_bytes() != Path(name).read_bytes():
        raise InputError(f"--use {name} and {loaded} have the same name; rename one of them")


def _line_of(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return ""  # it names its line itself
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _tables() -> dict[str, Table[Any]]:
    """Return every table that a file may add to, by its name in the package."""
    from fedgwc.algorithms import ALGORITHMS
    from fedgwc.data import DATASETS, PARTITIONS, SHIFTS
    from fedgwc.engines import ENGINES
    from fedgwc.metrics import METRICS
    from fedgwc.models import MODELS
    from fedgwc.training.optimisers import OPTIMISERS
    from fedgwc.training.schedules import SCHEDULES

    tables: list[tuple[str, Table[Any]]] = [
        ("ALGORITHMS", ALGORITHMS),
        ("MODELS", MODELS),
        ("DATASETS", DATASETS),
        ("PARTITIONS", PARTITIONS),
        ("SHIFTS", SHIFTS),
        ("ENGINES", ENGINES),
        ("OPTIMISERS", OPTIMISERS),
        ("SCHEDULES", SCHEDULES),
        ("METRICS", METRICS),
    ]
    return dict(tables)


def _check(name: str, before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Table[Any]]) -> None:
    """Refuse a file that enters nothing or takes a name.

    Results must not go under the name of something else.
    """
    if all(after[table].entered() == entries for table, entries in before.items()):
        raise InputError(
            f'--use {name} enters nothing in a table; it should say fedgwc.ALGORITHMS["NAME"] = ..., '
            f'fedgwc.models.MODELS["NAME"] = ... or the like, in one of {", ".join(after)}'
        )
    for table, entries in before.items():
        now = after[table].entered()
        if changed := [key for key, entry in entries.items() if now.get(key) is not entry]:
            raise InputError(f"--use {name} changes {changed[0]} in {table}, which is there already; choose another name")
        for key in now.keys() - entries.keys():
            if not isinstance(key, str) or not NAME.fullmatch(key) or key in TAKEN:
                wanted = f"letters, digits, - and _, and none of {', '.join(TAKEN)}"
                raise InputError(f"--use {name} enters {key!r} in {table}; a name is made of {wanted}")
            try:
                after[table].check(key, now[key])
            except InputError as error:
                raise InputError(f"--use {name}: {error}") from None
