"""The plan of a comparison: algorithms x settings x seeds on one recipe, as runs."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from hashlib import sha256

from fedgwc.algorithms.alone import Alone
from fedgwc.algorithms.fedavg import OneGroup
from fedgwc.algorithms.fesem import FeSEM
from fedgwc.algorithms.given import Given
from fedgwc.algorithms.ifca import IFCA
from fedgwc.algorithms.method import Method
from fedgwc.comparison.settings import SHARED, Setting, axes_of, settings_of
from fedgwc.core.assignments import Assignment, parse_assignment, parse_axis
from fedgwc.core.errors import InputError
from fedgwc.core.settings import convert
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.scale import scaled_experiment

MOST_RUNS = 10_000  # each is checked before the first begins, and has a folder
LONGEST = 255  # bytes of a folder's name, as systems allow


@dataclass(frozen=True)
class Run:
    """A cell of the comparison."""

    algorithm: str
    setting: Setting  # the swept keys that concern this algorithm, with their values: conditions and its own choices
    seed: int
    job: Experiment

    @property
    def name(self) -> str:
        """Return the name of its folder.

        A value that is a path becomes one word, and the rest of what is too long a digest.
        """
        setting = [f"{key.split('.')[-1]}={value}" for key, value in self.setting]
        name = re.sub(r"[/\\]", "_", "-".join([self.algorithm, *setting, f"seed{self.seed}"]))
        raw = name.encode()
        if len(raw) <= LONGEST:
            return name
        return f"{raw[: LONGEST - 20].decode(errors='ignore')}-{sha256(raw).hexdigest()[:16]}"


def plan_runs(
    recipe: str | None, algorithms: list[str], n_seeds: int, sets: list[str], scale: str, sweeps: list[str]
) -> list[Run]:
    """Plan every algorithm with every swept setting and seed; slips are told before anything runs."""
    axes = [parse_axis(s) for s in sweeps]
    unused = [key for key, _ in axes if key.split(".")[0] not in (*SHARED, *algorithms)]
    if unused:
        raise InputError(
            f"no algorithm of this comparison has the swept setting {unused[0]}; compared are {', '.join(algorithms)}"
            + ("; several seeds are --seeds N" if unused[0] == "seed" else "")
        )
    if n_seeds * sum(math.prod(len(values) for _, values in axes_of(name, axes)) for name in algorithms) > MOST_RUNS:
        raise InputError(f"a comparison has at most {MOST_RUNS:,} runs; take fewer seeds (got {n_seeds}), values or algorithms")
    first = _first_seed(sets)
    runs = []
    for name, seed in itertools.product(algorithms, range(first, first + n_seeds)):
        for setting in settings_of(name, axes):
            chosen = [(tuple(key.split(".")), value) for key, value in setting]
            build: list[Assignment] = [*sets, f"algorithm.name={name}", f"seed={seed}", *chosen]
            runs.append(Run(name, setting, seed, scaled_experiment(recipe, build, scale)))
    return runs


def _first_seed(sets: list[str]) -> int:
    """Return the first seed; the others count from it.

    Algorithms are an option of their own, which a setting would not change.
    """
    assigned = dict(map(parse_assignment, sets))
    if ("algorithm", "name") in assigned:
        raise InputError(f"compare has its algorithms from --algorithms; write --algorithms {assigned['algorithm', 'name']}")
    return int(convert(assigned.get(("seed",), 0), int, "seed"))


def finds_clusters(algorithm: object) -> str:
    """Tell whether the number of clusters is found or given.

    Given by a `k`; or it is no question.
    """
    who = algorithm.who if isinstance(algorithm, Method) else algorithm
    return "no" if isinstance(who, IFCA | FeSEM | Given) else "/" if isinstance(who, OneGroup | Alone) else "yes"
