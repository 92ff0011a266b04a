"""Runs sorted into methods.

Runs that differ in nothing but the seed belong together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.assignments import flatten
from fedgwc.core.settings import plain
from fedgwc.core.types import Floats
from fedgwc.report.data import Run
from fedgwc.report.figures.accuracy import series

IGNORED = ("seed", "rounds", "recipe", "about", "engine", "evaluate")  # they do not make another method


@dataclass(frozen=True)
class Method:
    name: str
    runs: tuple[Run, ...]

    def curve(self, key: str, scale: float = 1.0) -> tuple[Floats, Floats]:
        """Return rounds [T] and values [seeds, T].

        On the first run's evaluations, as far as every seed has come.
        """
        lines = [series(r, key, scale) for r in self.runs]
        lines = [line for line in lines if len(line[0])]
        if not lines:
            return np.empty(0), np.empty((0, 0))
        end = min(x[-1] for x, _ in lines)
        at = lines[0][0][lines[0][0] <= end]
        return at, np.array([np.interp(at, x, y) for x, y in lines])

    @property
    def splits(self) -> list[int]:
        return sorted({s.ended for r in self.runs for s in r.splits if s.ended is not None})


def methods_of(runs: list[Run]) -> list[Method]:
    """Sort runs into methods, in order of first appearance.

    Equal names are told apart by the settings in which they differ.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(settings(run), sort_keys=True), []).append(run)
    flat = [settings(g[0]) for g in groups.values()]
    named = [g[0].algorithm for g in groups.values()]
    methods = []
    for i, group in enumerate(groups.values()):
        rivals = [flat[j] for j in range(len(flat)) if named[j] == named[i]]
        methods.append(Method(" ".join([named[i], *differing(flat[i], rivals, preset(named[i]))]), tuple(group)))
    return methods


def settings(run: Run) -> dict[str, Any]:
    """Return settings by their full names, without paths."""
    flat = flatten({k: v for k, v in run.experiment.items() if k not in IGNORED})
    return {k: v for k, v in flat.items() if k != "data.root"}


def preset(name: str) -> dict[str, Any]:
    return flatten({"algorithm": plain(ALGORITHMS[name])}) if name in ALGORITHMS else {}


def differing(own: dict[str, Any], rivals: list[dict[str, Any]], usual: dict[str, Any]) -> list[str]:
    """Choose the settings that set `own` apart from the others.

    Where several settings do, those in which it is not as usual.
    """
    keys = [k for k in own if any(k not in r or r[k] != own[k] for r in rivals)]
    if len(keys) > 1:
        keys = [k for k in keys if k not in usual or usual[k] != own[k]]
    return [f"{k.removeprefix('algorithm.')}={own[k]}" for k in keys]
