"""Checkpoints that were cut off, flipped, mistaken or written to a full disk: the one before is used, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torture import children
from benchmarks.torture.runs import differences, job
from fedgwc.core.errors import InputError
from fedgwc.runs.loop import run
from fedgwc.runs.progress import Silent
from fedgwc.runs.tables import Table

Rng = np.random.Generator
Result = dict[str, Any]
FITTED = 5  # exit status of a run for which there was room after all
STOP = 12  # the round after which the run is interrupted, of 30


class Interrupted(Silent):
    """Presses Ctrl-C once, and hears what is said about checkpoints."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.heard = at, [""]

    def round(self, number: int, loss: float, n_clusters: int) -> None:
        if number == self.at:
            signal.raise_signal(signal.SIGINT)

    def message(self, text: str) -> None:
        self.heard.append(text)


def cut_off(newest: Path, _: Path, rng: Rng) -> None:
    raw = newest.read_bytes()
    newest.write_bytes(raw[: int(rng.integers(len(raw)))])


def flipped(newest: Path, _: Path, rng: Rng) -> None:
    raw = bytearray(newest.read_bytes())
    raw[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
    newest.write_bytes(raw)


def another_runs(newest: Path, foreign: Path, _: Rng) -> None:
    shutil.copy(foreign / "state" / newest.name, newest)


def another_algorithms(newest: Path, foreign: Path, _: Rng) -> None:
    shutil.copy(foreign.with_name("ifca") / "state" / newest.name, newest)


def of_another_round(newest: Path, _: Path, rng: Rng) -> None:
    newest.replace(newest.with_name(f"{STOP + int(rng.integers(1, 9)):08d}.ckpt"))


DAMAGES: dict[str, Callable[[Path, Path, Rng], None]] = {
    "cut off": cut_off,
    "one bit flipped": flipped,
    "from another run": another_runs,
    "from another algorithm": another_algorithms,
    "under another round's name": of_another_round,
}


def measure(times: int, seconds: float, seed: int = 0) -> Result:
    rng = np.random.default_rng(seed)
    stop = time.monotonic() + seconds
    found: Result = {}
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        every = {"evaluate": {"checkpoint_seconds": 0.0}}
        run(job("auto", **every), home / "whole")
        for name, seed_, folder in (("auto", 0, "stopped"), ("auto", 1, "foreign"), ("ifca", 0, "ifca")):
            run(job(name, seed=seed_, **every), home / folder, progress=Interrupted(STOP))
        for what, damage in DAMAGES.items():
            tally = found[what] = {"times": 0, "noticed": 0, "equal": 0}
            while tally["times"] < times and time.monotonic() < stop:
                fresh = home / "fresh"
                shutil.copytree(home / "stopped", fresh)
                damage(fresh / "state" / f"{STOP:08d}.ckpt", home / "foreign", rng)
                watcher = Interrupted()
                run(None, fresh, resume=True, progress=watcher)
                tally["times"] += 1
                tally["noticed"] += "left out a damaged checkpoint" in watcher.heard[-1]
                tally["equal"] += not differences(home / "whole", fresh)
                shutil.rmtree(fresh)
        found |= _full_disks(home, times, stop, rng)
    return found


def _full_disks(home: Path, times: int, stop: float, rng: Rng) -> Result:
    """Runs on a disk, or with a largest file, that is too small; then with room."""
    found: Result = {}
    for what, small in (("file size limit", _limited), ("full tmpfs", _tmpfs)):
        tally = found[what] = {"times": 0, "noticed": 0, "equal": 0}
        while tally["times"] < times and time.monotonic() < stop:
            with tempfile.TemporaryDirectory(dir=home) as fresh:
                try:
                    with small(Path(fresh), int(rng.integers(12, 60))) as (place, make_room):
                        folder = place / "run"
                        noticed = children.end(children.start(partial(_until_full, folder, what == "file size limit", rng)))
                        if noticed == FITTED:
                            continue
                        make_room()
                        again = children.end(children.start(partial(_finish, folder)))
                        tally["noticed"] += noticed == 0
                        tally["equal"] += again == 0 and not differences(home / "whole", folder)
                        tally["times"] += 1
                except PermissionError:
                    found[what] = {"times": 0, "noticed": 0, "equal": 0, "note": "not tried: mounting is not allowed here"}
                    break
    return found


def _until_full(folder: Path, limited: bool, rng: Rng) -> None:
    if limited:
        size = int(rng.integers(2_000, 12_000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        run(job("auto", evaluate={"checkpoint_seconds": 0.0}), folder)
    except InputError as error:
        if "make room" not in str(error):
            raise
    else:
        os._exit(FITTED)


def _finish(folder: Path) -> None:
    if (folder / "config.json").exists():
        run(None, folder, resume=True)
    else:
        run(job("auto", evaluate={"checkpoint_seconds": 0.0}), folder)


@contextlib.contextmanager
def _limited(place: Path, _: int) -> Iterator[tuple[Path, Callable[[], object]]]:
    """A limit that only the child puts on itself."""
    yield place, lambda: None


@contextlib.contextmanager
def _tmpfs(place: Path, kib: int) -> Iterator[tuple[Path, Callable[[], object]]]:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={4 * kib}k", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        raise PermissionError
    try:
        yield place, lambda: subprocess.run(["mount", "-o", "remount,size=64m", place], check=True)
    finally:
        subprocess.run(["umount", place], check=True)


def tables(found: Result) -> dict[str, Table]:
    rows = [[what, *(str(t[k]) for k in ("times", "noticed", "equal")), t.get("note", "")] for what, t in found.items()]
    return {"damage": Table(["damage", "times", "said so, and stopped or went on", "equal bit for bit in the end", ""], rows)}
