"""An experiment: what a recipe says, checked and typed, and how it becomes a federation, an engine and an algorithm."""

from __future__ import annotations

import inspect
import os
import threading
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from fedgwc.algorithms import ALGORITHMS, LOCAL
from fedgwc.core.assignments import Assignment, drop_path, parse_assignment, set_path
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Algorithm, StartsFromSeveral
from fedgwc.core.settings import call, check_keys, convert, defaults, did_you_mean, folder_name, override, plain, setting_names
from fedgwc.core.work import LocalTraining
from fedgwc.data import DATASETS, Federation, Splits, hold_out
from fedgwc.engines import ENGINES
from fedgwc.engines.pool import Member
from fedgwc.engines.settings import EngineSettings
from fedgwc.engines.simulator import Simulator
from fedgwc.models import MODELS
from fedgwc.runs.budget import Evaluate
from fedgwc.runs.formats import FORMAT, current
from fedgwc.runs.plugins import entry_named
from fedgwc.training.flat_model import FlatModel

DEFAULT_RECIPE = "digits"
DEFAULT_ALGORITHM = "auto"
_PYTORCHS_GENERATOR = threading.Lock()  # layers initialise themselves from the process's one generator, and runs may be threads
BUILT = ("data", "model")  # tables that are arguments of a function
SPLITS = tuple(vars(Splits()))  # settings of [data] that every data set has
EXCLUSIVE = {"steps": "epochs", "epochs": "steps"}  # only one can be: what is set takes the other's place
TABLES = (*BUILT, "local", "algorithm", "engine", "evaluate")


class Shaped(Protocol):
    """The shape and classes of data, for which a network is built; a federation has them."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def n_classes(self) -> int: ...


@dataclass(frozen=True)
class Experiment:
    """One run, fully described. `tables` is what was written; the typed fields are what it means."""

    rounds: int
    seed: int
    algorithm: Algorithm[Any]
    local: LocalTraining
    engine: EngineSettings
    evaluate: Evaluate
    splits: Splits
    tables: dict[str, Any] = field(repr=False)
    recipe: str = "experiment"
    about: str = ""

    @property
    def algorithm_name(self) -> str:
        return str(self.tables["algorithm"]["name"])

    @property
    def evaluate_every(self) -> int:
        return self.evaluate.every or max(1, self.rounds // 100)

    def federation(self, newcomers: bool = True) -> Federation:
        """The data, dealt out. `data.seed` fixes it across runs; by default it follows the run's seed.

        Without `newcomers` everybody trains, as where clients are real nodes.
        """
        settings = {key: value for key, value in self.tables["data"].items() if key not in SPLITS}
        build = entry_named(DATASETS, settings.pop("name", None), "data set")
        seed = _seed(settings.pop("seed", self.seed), "data.seed")
        for key in settings.keys() - _settings_of(build):
            if others := [other for other, its in DATASETS.items() if key in _settings_of(its)]:
                name = self.tables["data"]["name"]
                have = f"{', '.join(others)} {'has' if len(others) == 1 else 'have'}: choose one by data.name"
                raise InputError(f"data set {name} has no setting {key!r}, {have}")
        check_keys(settings, [*inspect.signature(build).parameters, *SPLITS], "data")
        splits = self.splits if newcomers else replace(self.splits, newcomers=0.0)
        return hold_out(call(build, settings, "data", seed=seed), splits, seed)

    def module(self, federation: Shaped, start: int = 0) -> nn.Module:
        """The network, freshly initialised; `start` numbers independent initialisations of one seed."""
        settings = dict(self.tables["model"])
        build = entry_named(MODELS, settings.pop("name", None), "model")
        with _PYTORCHS_GENERATOR, torch.random.fork_rng():
            torch.manual_seed(self.seed * 1000 + start)
            try:
                return call(build, settings, "model", shape=federation.shape, n_classes=federation.n_classes)
            # What torch says of sizes below 0 or beyond all memory.
            except (RuntimeError, TypeError, OverflowError, MemoryError) as error:
                raise InputError(f"[model] {settings} cannot be built: {str(error).splitlines()[0]}") from None

    def simulator(self, federation: Federation) -> Simulator:
        """Return the recipe's engine; one of a user's own has what runs use of a simulator."""
        return cast(Simulator, ENGINES.choose(self.engine.name)(federation, self.module(federation), self.local, self.engine))

    def initial(self, federation: Federation, engine: Simulator | Member) -> Tensor:
        """[D], or [M, D] for an algorithm that starts from M different models (its `n_models`)."""
        n_models = self.algorithm.n_models if isinstance(self.algorithm, StartsFromSeveral) else None
        modules = [self.module(federation, i) for i in range(n_models or 1)]
        models = torch.stack([FlatModel(m, engine.model.dtype, engine.device).vector() for m in modules])
        return models[0] if n_models is None else models

    def defaults(self) -> dict[str, Any]:
        """Return the defaults of what [data] and [model] leave open."""
        return {
            "data": defaults(entry_named(DATASETS, self.tables["data"].get("name"), "data set"), self.tables["data"]),
            "model": defaults(entry_named(MODELS, self.tables["model"].get("name"), "model"), self.tables["model"]),
        }

    def begun_with(self, config: Mapping[str, Any]) -> Experiment:
        """With the defaults that were in force when it began."""
        then = _table(config, "defaults")
        return replace(self, tables={**self.tables, **{name: {**_table(then, name), **self.tables[name]} for name in BUILT}})

    def to_json(self) -> dict[str, Any]:
        """Everything that decides the result, apart from `defaults`."""
        return {
            "format": FORMAT,
            "recipe": self.recipe,
            "about": self.about,
            "rounds": self.rounds,
            "seed": self.seed,
            "data": {**plain(self.tables["data"]), **plain(self.splits)},
            "model": plain(self.tables["model"]),
            "local": plain(self.local),
            "algorithm": {"name": self.algorithm_name, **plain(self.algorithm)},
            "engine": plain(self.engine),
            "evaluate": plain(self.evaluate),
        }


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """List the tables in which two runs (their `to_json`) differ. Not compared: rounds, names, engine, when to evaluate."""
    return [name for name in ("seed", "data", "model", "local", "algorithm") if one.get(name) != other.get(name)]


def experiment(tables: Mapping[str, Any], recipe: str = "experiment") -> Experiment:
    """A checked experiment from nested tables (a parsed recipe, a dict, a `config.json`).

    [algorithm] holds for whichever algorithm is chosen. A table named like an algorithm ([ifca]) holds for that one only and
    wins over [algorithm]; [fedgwc] is also for fedgwc-release, whose own table wins in turn. Its `local` is what its clients do
    otherwise than [local] says.
    """
    if tables.get("format", FORMAT) != FORMAT:
        raise InputError(f"format {tables['format']!r} is of another version of fedgwc; this one makes runs of format {FORMAT}")
    check_keys(tables, ("format", "rounds", "seed", *TABLES, "recipe", "about", *ALGORITHMS), "the recipe")
    t = {name: dict(_table(tables, name)) for name in TABLES}
    if "client_updates" in t["evaluate"]:
        raise InputError("evaluate.client_updates is evaluate.budget.updates now; write that, or --budget updates=N")
    name = t["algorithm"].setdefault("name", DEFAULT_ALGORITHM)
    rounds = convert(tables.get("rounds", 100), int, "rounds")
    if rounds < 1:
        raise InputError(f"rounds must be at least 1, got {rounds}")
    return Experiment(
        rounds,
        _seed(tables.get("seed", 0), "seed"),
        _algorithm(name, t["algorithm"], tables),
        _local(name, t["local"], tables),
        override(EngineSettings(), t["engine"], "engine"),
        override(Evaluate(), t["evaluate"], "evaluate"),
        override(Splits(), {key: value for key, value in t["data"].items() if key in SPLITS}, "data"),
        t,
        folder_name(convert(tables.get("recipe", recipe), str, "recipe"), "the recipe"),
        convert(tables.get("about", ""), str, "about"),
    )


def _seed(value: Any, where: str) -> int:
    seed: int = convert(value, int, where)
    if not 0 <= seed < 2**32:
        raise InputError(f"{where} must be in 0..2^32-1, got {seed}")
    return seed


def _algorithm(name: Any, settings: Mapping[str, Any], tables: Mapping[str, Any]) -> Algorithm[Any]:
    preset = entry_named(ALGORITHMS, name, "algorithm")
    _check_own(name, preset, settings)
    algorithm = override(preset, {k: v for k, v in settings.items() if k != "name"}, "algorithm")
    for other, theirs in ALGORITHMS.items():  # so that a slip shows whichever is chosen
        own, local = _own(tables, other)
        override(theirs, own, other)
        check_keys(local, setting_names(LocalTraining()), f"{other}.local")
    for each in _names_of(name):
        algorithm = override(algorithm, _own(tables, each)[0], each)
    return algorithm


def _names_of(algorithm: str) -> list[str]:
    """Return the tables that hold for an algorithm; the last one wins."""
    return list(dict.fromkeys((algorithm.partition("-")[0], algorithm)))


def _own(tables: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Divide an algorithm's own table into its settings and its clients'."""
    own = _table(tables, name)
    return {key: value for key, value in own.items() if key != "local"}, _table(own, "local")


def _local(name: str, settings: Mapping[str, Any], tables: Mapping[str, Any]) -> LocalTraining:
    """Return the clients' training: the preset's, the recipe's, and the algorithm's own."""
    merged = {**LOCAL.get(name, {}), **settings}
    for each in _names_of(name):
        own = _own(tables, each)[1]
        merged = {**{key: value for key, value in merged.items() if EXCLUSIVE.get(key) not in own}, **own}
    return override(LocalTraining(), merged, "local")


def _check_own(name: str, preset: Algorithm[Any], settings: Mapping[str, Any]) -> None:
    """[algorithm] is of one algorithm; what is none of its settings may be another one's."""
    for key in settings:
        others = [other for other, theirs in ALGORITHMS.items() if key in setting_names(theirs)]
        if others and key not in setting_names(preset):
            raise InputError(
                f"{name} has no setting {key!r}, {', '.join(others)} has; choose that by algorithm.name, "
                f"or say whose it is, {others[0]}.{key}, where several are compared"
            )
    check_keys(settings, ["name", *setting_names(preset)], "algorithm")


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, Mapping):
        raise InputError(f"{name} must be a table of settings, got {table!r}; did you mean {name}.name={table}?")
    return table


def recipes() -> dict[str, Path]:
    """The recipes that ship with the package, by name."""
    folder = resources.files("fedgwc.runs") / "recipes"
    return {p.name.removesuffix(".toml"): Path(str(p)) for p in folder.iterdir() if p.name.endswith(".toml")}


def read_recipe(recipe: str | os.PathLike[str] | None = None, sets: Iterable[Assignment] = ()) -> dict[str, Any]:
    """Read a shipped recipe by name or a TOML file by path, and apply assignments."""
    name = str(recipe or DEFAULT_RECIPE)
    known = recipes()
    path = known.get(name, Path(name))
    folder = path.parent if path.name == "config.json" else path
    if (folder / "config.json").is_file():
        raise InputError(f"{name} is of a run, and no recipe; to go on with the run: fedgwc run --resume --out {folder}")
    if not path.is_file():
        hint = did_you_mean(name, known)
        raise InputError(f"no recipe {name!r}{hint}: it is neither a file nor one of {', '.join(sorted(known))}")
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # of its syntax, its text, and numbers with too many digits
        raise InputError(f"{path} is not a TOML recipe: {error}") from None
    try:
        tables = {"recipe": path.stem, **current(written)}
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return assigned(tables, sets)


def assigned(tables: dict[str, Any], sets: Iterable[Assignment]) -> dict[str, Any]:
    """`tables` with `a.b=c` assignments applied, the last one winning."""
    given = [parse_assignment(each) for each in sets]
    for kind, table in (("data", DATASETS), ("model", MODELS)):
        tables = _renamed(tables, kind, table, [value for path, value in given if path == (kind, "name")])
    for one, other in EXCLUSIVE.items():
        if any(path == ("local", one) for path, _ in given):
            tables = drop_path(tables, ("local", other))
    for path, value in given:
        if path[0] in ("algorithm", "local"):  # meant for whichever is chosen, so what the recipe says for single ones gives way
            for name in ALGORITHMS:
                tables = drop_path(tables, (name, *(path[1:] if path[0] == "algorithm" else path)))
        tables = set_path(tables, path, value)
    return tables


def _settings_of(build: Callable[..., Any]) -> set[str]:
    return {"seed", *SPLITS, *inspect.signature(build).parameters}


def _renamed(tables: dict[str, Any], kind: str, known: Mapping[str, Any], names: list[Any]) -> dict[str, Any]:
    """Another data set or model has other settings: those of the recipe's that it does not know were not meant for it."""
    own = _table(tables, kind)
    if not names or not isinstance(names[-1], str) or names[-1] not in known or names[-1] == own.get("name"):
        return tables
    its = _settings_of(known[names[-1]])
    return {**tables, kind: {key: value for key, value in own.items() if key in its}}


def load(recipe: str | os.PathLike[str] | Mapping[str, Any] | None = None, sets: Iterable[Assignment] = ()) -> Experiment:
    """Read an experiment from a recipe's name, a file or tables; `sets` are assignments `a.b=c`."""
    sets = [sets] if isinstance(sets, str) else list(sets)
    tables = assigned(dict(recipe), sets) if isinstance(recipe, Mapping) else read_recipe(recipe, sets)
    return experiment(tables)
