"""Search spaces of the methods that are tuned, by full keys: `ifca.k`, `ifca.local.lr`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.assignments import Assignment, flatten, parse_assignment
from fedgwc.core.errors import InputError
from fedgwc.core.search import Search, declared, parse_search
from fedgwc.core.settings import did_you_mean, plain
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.plugins import entry_named
from fedgwc.runs.scale import scaled_experiment

WORK = ("local.steps", "local.epochs")  # more of these is more work in a round
LIMITS_WORK = {"steps", "samples", "seconds"}  # budgets under which all methods do the same


@dataclass(frozen=True)
class Tuned:
    """A method that is tuned: what of it is searched, from where."""

    name: str
    job: Experiment  # under the settings that it has by itself
    space: Mapping[str, Search]
    defaults: Mapping[str, Any]  # of what is searched, as near as the space allows


@dataclass(frozen=True)
class Recipe:
    """The recipe of a tuning, with the user's settings."""

    name: str | None
    sets: tuple[Assignment, ...] = ()
    scale: str = "full"

    def experiment(self, algorithm: str, *settings: Assignment) -> Experiment:
        return scaled_experiment(self.name, [*self.sets, f"algorithm.name={algorithm}", *settings], self.scale)


def tuned_methods(recipe: Recipe, algorithms: Sequence[str], spaces: Sequence[str] = ()) -> list[Tuned]:
    """Return the methods to tune with their checked spaces.

    Settings on the command line are fixed, those of the recipe are where a search begins.
    """
    for name in algorithms:
        entry_named(ALGORITHMS, name, "algorithm")
    paths = [path for path, _ in map(parse_assignment, recipe.sets)]
    if ("algorithm", "name") in paths:
        raise InputError("tuning has its algorithms from --algorithms; leave out --set algorithm.name")
    given = [_given(text, algorithms) for text in spaces]
    return [_tuned(recipe, name, {k: s for key, s in given for k in [_own_key(key, name)] if k}) for name in algorithms]


def _given(text: str, algorithms: Sequence[str]) -> tuple[str, Search]:
    """Read KEY=SPACE as users type it."""
    key, equals, space = (part.strip() for part in text.partition("="))
    head = key.partition(".")[0]
    if not equals or "." not in key:
        raise InputError(f"a search space is written KEY=SPACE, such as ifca.k=2..8 or local.lr=log:0.01..1; got {text!r}")
    if head in ("data", "model", "evaluate", "engine"):
        raise InputError(f"{key} is a condition and no choice of a method; compare --sweep {key}=... compares under each")
    if head not in ("local", *algorithms):
        hint = did_you_mean(head, algorithms)
        raise InputError(
            f"the search space {key} is of no method that is tuned{hint}; these are {', '.join(algorithms)}, or local"
        )
    return key, parse_search(space)


def _own_key(key: str, name: str) -> str | None:
    """Return the full key of a setting where it concerns a method."""
    head = key.partition(".")[0]
    return key if head == name else f"{name}.{key}" if head == "local" else None


def _tuned(recipe: Recipe, name: str, given: Mapping[str, Search]) -> Tuned:
    job = recipe.experiment(name)
    if not job.splits.validation:
        raise InputError("tuning selects on validation samples, and there are none; hold some out: --set data.validation=0.2")
    values = flatten(plain(job.algorithm)) | flatten({"local": plain(job.local)})
    own = {key: search for key, (search, value) in _declared(job).items() if value in search and not _is_fixed(recipe, name, key)}
    if not LIMITS_WORK & job.evaluate.budget.limits.keys():
        own = {key: search for key, search in own.items() if key not in WORK}
    space = {f"{name}.{key}": search for key, search in own.items()} | dict(given)
    space = {key: search.like(values.get(key.removeprefix(f"{name}."))) for key, search in space.items()}
    if not space:
        raise InputError(
            f"{name} has nothing to search: its settings declare no space, or all are fixed by --set; give one, "
            f"such as --space {name}.local.lr=log:0.01..1"
        )
    for key, search in space.items():
        for end in search.ends:
            recipe.experiment(name, (tuple(key.split(".")), end))  # or an error that says what is allowed
    return Tuned(name, job, space, {key: s.nearest(values.get(key.removeprefix(f"{name}."))) for key, s in space.items()})


def _declared(job: Experiment) -> dict[str, tuple[Search, Any]]:
    return declared(job.algorithm) | declared(job.local, "local.")


def _is_fixed(recipe: Recipe, name: str, key: str) -> bool:
    """Tell whether the user has set a setting on the command line."""
    own = tuple(key.split("."))
    heads = [(name, *own), (name.partition("-")[0], *own), own if own[0] == "local" else ("algorithm", *own)]
    return any(path in heads for path, _ in map(parse_assignment, recipe.sets))
