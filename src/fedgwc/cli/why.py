"""One line on why a federation was divided, or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.core.errors import InputError
from fedgwc.core.text import printable
from fedgwc.io.npz import read_npz
from fedgwc.runs.experiment import experiment
from fedgwc.runs.folder import VERDICTS, RunFolder


def why_of(folder: RunFolder) -> str | None:
    """Return the line for a run; None: its algorithm gives no reasons."""
    algorithm = experiment(folder.config()["experiment"]).algorithm
    if not isinstance(algorithm, Auto):
        return None
    clients_file = folder.path / "clients.npz"
    too_few = algorithm.too_few(len(read_npz(clients_file)["sizes"])) if clients_file.is_file() else ""
    try:
        return printable(why(folder.verdicts(), too_few))
    except (KeyError, TypeError):
        raise InputError(f"{folder.path / VERDICTS} is not as it was written; put it back as the run wrote it") from None


def why(verdicts: Sequence[Mapping[str, Any]], too_few: str = "") -> str:
    """Explain the first division that was not undone, or its absence.

    The last reason not to divide; `too_few`: nobody can be divided.
    """
    if not verdicts:
        return f"no division: {too_few}" if too_few else "no division yet: the first window of rounds has not come to its end"
    divisions: list[Mapping[str, Any]] = []
    for v in verdicts:
        if v["divides"]:
            divisions.append(v)
        elif v.get("reason") == "rejoined":
            divisions = [d for d in divisions if d["cluster"] != v["cluster"]]
    if not divisions:
        return f"no division by round {verdicts[-1]['round']:,}: {verdicts[-1]['why']}"
    first, more = divisions[0], len(divisions) - 1
    sides = " + ".join(map(str, first["sizes"]))
    rest = f"; {more} more division{'s' if more > 1 else ''} later" if more else ""
    return f"divided at round {first['round']:,} into {sides} clients: {first['why']}{rest}"
