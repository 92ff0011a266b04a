"""One line on why a federation was divided, or was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedgwc.algorithms.fedgwc import FedGWC
from fedgwc.experiment import experiment
from fedgwc.record import RunFolder


def why_of(folder: RunFolder) -> str | None:
    """None: the run's algorithm does not tell."""
    algorithm = experiment(folder.config()["experiment"]).algorithm
    return why(folder.verdicts()) if isinstance(algorithm, FedGWC) and algorithm.when == "windows" else None


def why(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """The first division and its reason, or the last reason not to divide."""
    if not verdicts:
        return "no division yet: the first window of rounds has not come to its end"
    divisions = [v for v in verdicts if v["divides"]]
    if not divisions:
        return f"no division by round {verdicts[-1]['round']:,}: {verdicts[-1]['why']}"
    first, more = divisions[0], len(divisions) - 1
    sides = " + ".join(map(str, first["sizes"]))
    rest = f"; {more} more division{'s' if more > 1 else ''} later" if more else ""
    return f"divided at round {first['round']:,} into {sides} clients: {first['why']}{rest}"
