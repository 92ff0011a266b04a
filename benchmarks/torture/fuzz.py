"""Broken files for every reader: each is read or refused with the package's own error; nothing runs, nothing grows."""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import signal
import sys
import sysconfig
import tempfile
import time
import traceback
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torture import children
from benchmarks.torture.mutate import mutated
from benchmarks.torture.readers import Reader, all_readers
from fedgwc.core.errors import InputError
from fedgwc.runs.tables import Table

Result = dict[str, Any]
HEADROOM = 4 * 2**30  # bytes of address space that reading may take on top of what the process has
PATIENCE = 60  # seconds for one input
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "ctypes.dlopen")
CHANGING = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.link", "os.symlink", "os.truncate")


@dataclass
class Tally:
    """What became of the inputs of one reader."""

    inputs: int = 0
    read: int = 0
    refused: int = 0
    wrong: dict[str, int] = field(default_factory=dict)  # anything else, by exception and place
    forbidden: list[str] = field(default_factory=list)  # what should not have been tried: commands, sockets, other folders
    growth_mib: float = 0.0  # of the process's peak memory
    slowest: float = 0.0

    def plus(self, other: Tally) -> Tally:
        wrong = {k: self.wrong.get(k, 0) + other.wrong.get(k, 0) for k in {**self.wrong, **other.wrong}}
        return Tally(
            self.inputs + other.inputs,
            self.read + other.read,
            self.refused + other.refused,
            wrong,
            self.forbidden + other.forbidden,
            max(self.growth_mib, other.growth_mib),
            max(self.slowest, other.slowest),
        )


def fuzz(reader: Reader, inputs: int, seconds: float, seed: int, place: Path) -> Tally:
    """In a child process, with little room and under observation."""
    report = place / "tally.json"
    pid = children.start(lambda: report.write_text(json.dumps(asdict(_fuzz(reader, inputs, seconds, seed, place)))))
    status = children.end(pid)
    if status:
        return Tally(wrong={f"the process ended with status {status}": 1})
    return Tally(**json.loads(report.read_text()))


def _fuzz(reader: Reader, inputs: int, seconds: float, seed: int, place: Path) -> Tally:
    rng = np.random.default_rng(seed)
    folder = place / "fuzzed"
    shutil.copytree(reader.folder, folder)
    whole = {name: (reader.folder / name).read_bytes() for name in reader.files}
    warnings.simplefilter("ignore")
    reader.read(folder)  # so that everything is imported, and whole files are known to be read
    tally, began, before = Tally(), time.monotonic(), _peak()
    _limit()
    _watch(place, tally.forbidden)
    while tally.inputs < inputs and time.monotonic() - began < seconds:
        name, other = (reader.files[int(i)] for i in rng.integers(len(reader.files), size=2))
        (folder / name).write_bytes(reader.mend(mutated(whole[name], whole[other], rng)))
        _one(reader, folder, tally)
        (folder / name).write_bytes(whole[name])
    tally.growth_mib = round((_peak() - before) / 2**20, 1)
    return tally


def _one(reader: Reader, folder: Path, tally: Tally) -> None:
    tally.inputs += 1
    began = time.monotonic()
    signal.alarm(PATIENCE)
    try:
        reader.read(folder)
        tally.read += 1
    except InputError:
        tally.refused += 1
    except Exception as error:
        where = [f for f in traceback.extract_tb(error.__traceback__) if f"{os.sep}fedgwc{os.sep}" in f.filename]
        spot = f"{Path(where[-1].filename).name}:{where[-1].lineno}" if where else "?"
        what = f"{type(error).__name__} in {spot}: {str(error)[:80]}"
        tally.wrong[what] = tally.wrong.get(what, 0) + 1
    finally:
        signal.alarm(0)
    tally.slowest = max(tally.slowest, time.monotonic() - began)


def _watch(place: Path, found: list[str]) -> None:
    """From now on whatever this process tries outside of `place` is written down; Python's own files may be read."""
    homes = [str(place.resolve()), *{str(Path(p).resolve()) for p in sysconfig.get_paths().values()}, *filter(None, sys.path)]

    def outside(path: Any) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and not os.path.realpath(os.fsdecode(path)).startswith(tuple(homes))

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in FORBIDDEN or (event in (*CHANGING, "open") and args and outside(args[0])):
            found.append(f"{event} {args[:1]}"[:200])

    sys.addaudithook(hook)


def _limit() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process: a reader that hangs may hang in C
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + HEADROOM, size + HEADROOM))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(inputs: int, seconds: float, seed: int = 0) -> Result:
    """`inputs` in all, in slices: the quick readers get what the slow ones have no time for."""
    stop = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as place:
        readers = all_readers(Path(place))
        tallies = {name: Tally() for name in readers}
        share = -(-inputs // len(readers))
        for turn in itertools.count():
            for name, reader in readers.items():
                left = stop - time.monotonic()
                if left <= 0 or sum(t.inputs for t in tallies.values()) >= inputs:
                    return {name: asdict(tally) for name, tally in tallies.items()}
                with tempfile.TemporaryDirectory(dir=place) as fresh:
                    slice_ = fuzz(reader, share, min(left, seconds / len(readers) / 2), seed + turn, Path(fresh))
                tallies[name] = tallies[name].plus(slice_)
    raise AssertionError("counting never ends")


def tables(found: Result) -> dict[str, Table]:
    def row(name: str, t: dict[str, Any]) -> list[str]:
        wrong = "; ".join(f"{n} x {what}" for what, n in t["wrong"].items()) or "0"
        numbers = [f"{t[key]:,}" for key in ("inputs", "read", "refused")]
        return [name, *numbers, wrong, str(len(t["forbidden"])), f"{t['growth_mib']:.0f}", f"{t['slowest']:.1f}"]

    total = Tally()
    for t in found.values():
        total = total.plus(Tally(**t))
    head = ["reader", "inputs", "read", "refused", "anything else", "forbidden acts", "memory, MiB", "slowest, s"]
    return {"fuzz": Table(head, [*(row(name, t) for name, t in found.items()), row("all", asdict(total))])}
