"""Kill runs at any moment, resume them, and compare them with the run that nobody disturbed."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.torture import children
from benchmarks.torture.runs import ALGORITHMS, differences, job
from fedgwc.core.errors import InputError
from fedgwc.io.state_file import verified_content
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import run
from fedgwc.runs.progress import Silent
from fedgwc.runs.tables import Table

Rng = np.random.Generator
Result = dict[str, Any]
MOST_KILLS = 3  # of one run, before it may finish


@dataclass
class Tally:
    """What happened to the runs of one algorithm."""

    kills: dict[str, int] = field(default_factory=dict)  # by moment
    runs: int = 0
    equal: int = 0
    unreadable: int = 0
    repeated: list[int] = field(default_factory=list)  # rounds done again, per kill
    needlessly: int = 0  # kills after which rounds before the last checkpoint were done again
    trouble: list[str] = field(default_factory=list)


class Notes(Silent):
    """Writes down which rounds are done, where a kill cannot reach."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, title: str, n_rounds: int, done: int, folder: Path | None = None) -> None:
        self._note(f"from {done}")

    def round(self, number: int, loss: float, n_clusters: int) -> None:
        self._note(str(number))

    def _note(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text + "\n")


def deadly(target: str, at: int, after: bool) -> Any:
    """A patch under which the `at`-th call of `target` is the last thing its process does (`after`: once it has returned)."""
    module, _, name = target.rpartition(".")
    owner = _resolve(module)
    original = getattr(owner, name)
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at and not after:
            children.die()
        result = original(*args, **kwargs)
        if calls == at:
            children.die()
        return result

    return patch.object(owner, name, wrapped)


def _resolve(path: str) -> Any:
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError):
            found = importlib.import_module(".".join(parts[:cut]))
            for name in parts[cut:]:
                found = getattr(found, name)
            return found
    raise ImportError(path)


@contextlib.contextmanager
def _torn_write(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes, and the process that tries is killed with the file half written."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    yield


# Where each algorithm decides on groups; for one without groups, where it takes the mean.
GROUPING = {
    "ifca": "fedgwc.algorithms.ifca.losses_of",
    "fesem": "fedgwc.algorithms.fesem.e_step",
    "cfl": "fedgwc.algorithms.cfl.CFL.cut",
    "auto": "fedgwc.algorithms.auto.proposals.best_cut",
    "fedgwc": "fedgwc.algorithms.fedgwc.splits.fedgw_cluster",
    "fedgwc-release": "fedgwc.algorithms.fedgwc.splits.fedgw_cluster",
}
RESULTS = (
    "fedgwc.runs.folder.RunFolder.save_models",
    "fedgwc.runs.folder.RunFolder.save_clusters",
    "fedgwc.runs.folder.RunFolder.save_per_client",
    "shutil.rmtree",
    "safetensors.torch.save",
)
MAKING = ("pathlib.Path.mkdir", "os.fsync", "os.replace")


def _one_of(targets: tuple[str, ...], most: int, rng: Rng) -> Any:
    """Before or after one of the first `most` calls of one of `targets`."""
    return deadly(targets[int(rng.integers(len(targets)))], int(rng.integers(1, most + 1)), bool(rng.integers(2)))


# Contexts in which a run of an algorithm dies at a moment of some kind.
MOMENTS: dict[str, Callable[[str, Rng], Any]] = {
    "any time": lambda algorithm, rng: contextlib.nullcontext(),  # the parent kills
    "training": lambda algorithm, rng: _one_of(("fedgwc.engines.simulator.Simulator.train",), 20, rng),
    "grouping": lambda algorithm, rng: _one_of((GROUPING.get(algorithm, "fedgwc.algorithms.aggregate.Aggregator.step"),), 5, rng),
    "before an fsync": lambda algorithm, rng: deadly("os.fsync", int(rng.integers(1, 40)), False),
    "around a rename": lambda algorithm, rng: _one_of(("os.replace",), 20, rng),
    "in mid-write": lambda algorithm, rng: _torn_write(int(rng.integers(100, 12_000))),
    "results": lambda algorithm, rng: _one_of(RESULTS, 2, rng),
    "making the folder": lambda algorithm, rng: _one_of(MAKING, 4, rng),
}


def torture(name: str, moment: str, reference: Path, seconds: float, rng: Rng, place: Path, tally: Tally) -> None:
    """One run, killed up to MOST_KILLS times at moments of one kind, then left to finish."""
    folder, notes = place / "run", place / "notes"
    for _ in range(int(rng.integers(1, MOST_KILLS + 1))):
        pid = children.start(partial(_go, name, folder, notes, MOMENTS[moment](name, rng)))
        status = children.kill_after(pid, float(rng.uniform(0, seconds))) if moment == "any time" else children.end(pid)
        if status == 0:
            break  # it was done before its moment came
        if status not in (-signal.SIGKILL, -signal.SIGXFSZ):
            tally.trouble.append(f"{name}, {moment}: a run ended with status {status}")
            return
        tally.kills[moment] = tally.kills.get(moment, 0) + 1
        _inspect(folder, notes, tally)
    status = children.end(children.start(partial(_go, name, folder, notes, contextlib.nullcontext())))
    tally.runs += 1
    if status:
        tally.trouble.append(f"{name}, {moment}: could not be resumed")
        return
    _account(folder, notes, tally)
    differing = differences(reference, folder)
    tally.equal += not differing
    if differing:
        tally.trouble.append(f"{name}, {moment}: {', '.join(differing)} differ")


def _go(name: str, folder: Path, notes: Path, moment: Any) -> None:
    with moment:
        if RunFolder(folder).has_run():
            run(None, folder, resume=True, progress=Notes(notes))
        else:
            run(job(name), folder, progress=Notes(notes))


def newest(folder: Path) -> int:
    """The round of the newest sound checkpoint."""
    files = sorted((folder / "state").glob("*.ckpt"), reverse=True)
    return next((int(f.stem) for f in files if _sound(f)), 0)


def _sound(path: Path) -> bool:
    try:
        verified_content(path.read_bytes())
    except InputError:
        return False
    return True


def _inspect(folder: Path, notes: Path, tally: Tally) -> None:
    """What a kill left behind must be readable, and says what will be done again."""
    if not RunFolder(folder).has_run():
        return
    safe = newest(folder)
    try:
        RunFolder(folder).config()
        RunFolder(folder).metrics()
        if any((folder / "trace").glob("*.npz")):
            RunFolder(folder).trace()
    except Exception as error:
        tally.unreadable += 1
        tally.trouble.append(f"unreadable after a kill: {error}")
    words = notes.read_text().split() if notes.exists() else []
    last = int(words[-1]) if words else 0  # a round, or the one it started from; killed before its first note: none
    tally.repeated.append(last - safe)
    with notes.open("a") as file:
        file.write(f"safe {safe}\n")


def _account(folder: Path, notes: Path, tally: Tally) -> None:
    """After a kill a run must go on exactly behind the newest checkpoint that was there."""
    lines = notes.read_text().splitlines()
    for before, line in itertools.pairwise(lines):
        if before.startswith("safe") and line.startswith("from") and before.split()[1] != line.split()[1]:
            tally.needlessly += 1


def measure(kills: int, seconds: float, names: tuple[str, ...] = tuple(ALGORITHMS), seed: int = 0) -> Result:
    """Until there were `kills` of them, or time is up: every algorithm at every moment in turn."""
    rng = np.random.default_rng(seed)
    tallies = {name: Tally() for name in names}
    stop = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as place:
        lasts = {}
        for name in names:
            began = time.monotonic()
            run(job(name), Path(place) / name)  # in this process: what children are forked from is warm
            lasts[name] = time.monotonic() - began
        moments = list(MOMENTS)
        for i in itertools.count():  # early on every algorithm and every moment, in the end every pair
            name, moment = names[i % len(names)], moments[(i + i // len(names)) % len(moments)]
            if time.monotonic() > stop or sum(sum(t.kills.values()) for t in tallies.values()) >= kills:
                break
            with tempfile.TemporaryDirectory(dir=place) as fresh:
                torture(name, moment, Path(place) / name, lasts[name], rng, Path(fresh), tallies[name])
    return {name: asdict(tally) for name, tally in tallies.items()}


def tables(found: Result) -> dict[str, Table]:
    everywhere = sum((Counter(t["kills"]) for t in found.values()), Counter[str]())
    rows = [
        [
            name,
            str(sum(t["kills"].values())),
            str(t["runs"]),
            f"{t['equal']} of {t['runs']}",
            str(t["unreadable"]),
            f"{np.mean(t['repeated']):.1f} (most {max(t['repeated'])})" if t["repeated"] else "–",
            str(t["needlessly"]),
        ]
        for name, t in found.items()
    ]
    head = [
        "algorithm",
        "kills",
        "runs",
        "equal bit for bit",
        "unreadable folders",
        "rounds repeated per kill",
        "needlessly",
    ]
    moments = Table(["killed", "times"], [[m, str(everywhere[m])] for m in MOMENTS] + [["in all", str(everywhere.total())]])
    return {"crashes": Table(head, rows), "moments": moments}
