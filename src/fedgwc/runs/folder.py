"""The folder of one run: what was asked, what was measured, what was seen, and where it stands.

config.json     the experiment, the engine's choices, versions
metrics.jsonl   one line per evaluation
verdicts.jsonl  one line per attempt to divide a cluster, and per move, that says what decided, where the algorithm tells
trace/          who was sampled, in which cluster, which losses; one npz per checkpoint
splits/         the tree of clusters, and P at every split and at the end
state/          the last two checkpoints
models/         one safetensors file per cluster
clients.npz     clients' numbers of samples and, where they are known, samples per class, true groups and names
labels.csv      each client's cluster at the end
counts.csv      each client's samples per class, where they are known: over Flower only if every node shares them
per_client.npz  how the final models serve each client
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Generic

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.protocols import State
from fedgwc.core.text import csv_cell
from fedgwc.core.types import Ids
from fedgwc.engines.meter import Reported
from fedgwc.io.atomic import sync, write_atomically
from fedgwc.io.csv_table import csv_bytes
from fedgwc.io.files import regular_file
from fedgwc.io.json_lines import read_rows
from fedgwc.io.npz import npz_bytes, read_npz
from fedgwc.io.state_file import pack, unpack
from fedgwc.runs.formats import folder_tables
from fedgwc.runs.trace import read_pieces, trace_arrays

METRICS, VERDICTS = "metrics.jsonl", "verdicts.jsonl"
LOCK = "lock"
KEEP_CHECKPOINTS = 2  # a damaged newest one leaves a good older one
SUBFOLDERS = ("trace", "splits", "state", "models")
FOREIGN = "the checkpoint belongs to another run"
_NOTED: set[Path] = set()  # folders of an earlier version of which that was said
log = logging.getLogger("fedgwc")
_NUMBERED = re.compile(r"(\d{8})-(\d+)\.npz")  # trace/FIRST-LAST.npz and splits/ROUND-CLUSTER.npz
_TEMPORARY = re.compile(r"\..+\.tmp")


@dataclass(frozen=True)
class Stamped(Generic[State]):
    """A state with the run that it belongs to, which no file from elsewhere has."""

    run: str  # digest of config.json
    round: int
    state: State


def new_folder(recipe: str, algorithm: str, root: Path = Path("runs")) -> Path:
    """`runs/<recipe>-<algorithm>-<n>`, made here and now so that two runs never share it."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"{root} is a file or a link to nowhere, not a folder for runs; move it away or choose --out") from None
    n = 1
    while True:
        path = root / f"{recipe}-{algorithm}-{n}"
        try:
            path.mkdir()
        except FileExistsError:
            n += 1
        else:
            return path


class RunFolder:
    """Opened by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None
        self._digest = ""
        self._trace: list[tuple[int, Reported]] = []

    # Opening

    def create(self, config: Mapping[str, Any]) -> None:
        """Start a run in an empty or new folder."""
        self._refuse_if_used()
        self.path.mkdir(parents=True, exist_ok=True)
        self.lock()
        try:
            self._refuse_if_used()  # again: until the lock was ours, another run could begin and end here
            for name in SUBFOLDERS:
                (self.path / name).mkdir(exist_ok=True)
            write_atomically(self.path / "config.json", json.dumps(config, indent=2).encode())
        except BaseException:
            self.close()
            raise

    def _refuse_if_used(self) -> None:
        if not self.path.exists() or (self.path.is_dir() and all(map(_is_remains, self.path.iterdir()))):
            return
        what = "already holds a run" if self.has_run() else "is not an empty folder"
        hint = f"resume it with --resume --out {self.path}, or " if self.has_run() else ""
        raise InputError(f"{self.path} {what}; {hint}choose another --out")

    def has_run(self) -> bool:
        return (self.path / "config.json").is_file()

    def config(self) -> dict[str, Any]:
        if not self.has_run():
            raise InputError(f"{self.path} holds no run (no config.json there)")
        try:
            config = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{self.path / 'config.json'} cannot be read: {error}") from None
        if not isinstance(config, dict) or not isinstance(config.get("experiment"), dict):
            raise InputError(f"{self.path / 'config.json'} is not the configuration of a run")
        try:
            config["experiment"], note = folder_tables(config["experiment"])
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from None
        if note and self.path not in _NOTED:
            _NOTED.add(self.path)
            log.warning("%s was %s", self.path, note)
        return config

    def lock(self) -> None:
        self._refuse_links()
        opened = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        handle = os.fdopen(opened, "r+b", buffering=0)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.close()
            raise InputError(f"another process is writing to {self.path}; wait for it or choose another --out") from None
        self._lock = handle  # held until `close` or the end of the process
        _OPEN.add(self)
        for path in (p for folder in (self.path, *map(self.path.joinpath, SUBFOLDERS)) for p in folder.glob(".*.tmp")):
            # half-written when an earlier process was killed
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def _refuse_links(self) -> None:
        """A folder may come from elsewhere: through a link in it, a run would write and delete outside of it."""
        for name in (LOCK, METRICS, VERDICTS, *SUBFOLDERS):
            path, wanted = self.path / name, "folder" if name in SUBFOLDERS else "file"
            if path.is_symlink() or (path.exists() and not (path.is_dir() if name in SUBFOLDERS else path.is_file())):
                raise InputError(f"{path} is no ordinary {wanted}; a run writes there, so put a {wanted} in its place")

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # Metrics and trace

    def log(self, row: Mapping[str, Any], name: str = METRICS) -> None:
        """One more line. Scores may be infinite by definition; they stand there as Python's json writes and reads them."""
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        return read_rows(self.path / METRICS)

    def verdicts(self) -> list[dict[str, Any]]:
        return read_rows(self.path / VERDICTS)

    def _logs(self) -> list[Path]:
        return [path for name in (METRICS, VERDICTS) if (path := self.path / name).exists()]

    def observe(self, number: int, reported: list[Reported]) -> None:
        self._trace += [(number, r) for r in reported]

    def trace(self) -> dict[str, NDArray[Any]]:
        """Read all that was seen so far: ids [T, n], L [T, n, S], cluster [T, n], round [T]; -1 and NaN pad."""
        return read_pieces(sorted(_numbered(self.path / "trace")))

    def save_clients(
        self, counts: NDArray[Any] | None, sizes: NDArray[Any], groups: NDArray[Any] | None, names: Sequence[str] = ()
    ) -> None:
        """Save the clients' sizes and, where they are known, class counts, groups and names."""
        known = {"counts": counts, "truth": groups, "names": np.array(names) if names else None}
        arrays = {name: array for name, array in known.items() if array is not None}
        write_atomically(self.path / "clients.npz", npz_bytes({"sizes": sizes.astype(np.int64), **arrays}))

    def trace_with_clients(self) -> dict[str, NDArray[Any]]:
        """The trace together with what is known of the clients: all that `fedgwc replay` needs."""
        self.config()  # a folder that is no run is told so
        return {**read_npz(self.path / "clients.npz"), **self.trace()}

    # Checkpoints

    def checkpoint(self, number: int, state: Any) -> None:
        """Everything up to round `number` is safe once this returns."""
        if self._trace:
            first = self._trace[0][0]
            write_atomically(self.path / "trace" / f"{first:08d}-{number:08d}.npz", npz_bytes(trace_arrays(self._trace)))
            self._trace = []
        for path in self._logs():
            sync(path)
        write_atomically(self.path / "state" / f"{number:08d}.ckpt", pack(Stamped(self._stamp(), number, state)))
        for old in sorted((self.path / "state").glob("*.ckpt"))[:-KEEP_CHECKPOINTS]:
            old.unlink()

    def restore(self, kind: Any, device: torch.device | str, tell: Callable[[str], None]) -> tuple[int, Any] | None:
        """The newest sound checkpoint as (round, state), or None: start again. Whatever was recorded later is dropped."""
        damaged: dict[Path, str] = {}
        for path in sorted((self.path / "state").glob("*.ckpt"), reverse=True):
            try:
                number, state = self._read_checkpoint(path, kind, device)
            except (InputError, OSError) as error:
                damaged[path] = str(error)
                continue
            self._go_back_to(number)
            for bad, why in damaged.items():
                tell(f"left out a damaged checkpoint, {bad.name}: {why}")
                bad.replace(bad.with_suffix(".damaged"))  # out of the way, but there for whoever can still use it
            return number, state
        self._refuse_to_lose(damaged)
        self._go_back_to(0)  # killed before its first checkpoint
        return None

    def _refuse_to_lose(self, damaged: Mapping[Path, str]) -> None:
        """Refuse to start from the beginning where that would throw away results."""
        state, finished = self.path / "state", (self.path / "labels.csv").exists()
        afresh = "begin anew with another --out" if finished else f"empty {state} to start from the beginning"
        if damaged:
            found = "; ".join(f"{bad.name}: {why}" for bad, why in damaged.items())
            changed = set(damaged.values()) == {FOREIGN}  # more likely than that all were mistaken
            cure = "if config.json was changed, put it back as it was" if changed else "put a good one there"
            raise InputError(f"{self.path} has no usable checkpoint ({found}); {cure}, or {afresh}")
        if finished:
            raise InputError(f"{self.path} holds a finished run without a checkpoint; put one into {state}, or {afresh}")
        if not state.is_dir():
            raise InputError(f"{state} is missing, where checkpoints are; put it back, or make it to start from the beginning")

    def _read_checkpoint(self, path: Path, kind: Any, device: torch.device | str) -> tuple[int, Any]:
        saved = unpack(regular_file(path).read_bytes(), Stamped[kind], device)
        if saved.run != self._stamp():
            raise InputError(FOREIGN)
        if path.stem != f"{saved.round:08d}":
            raise InputError(f"the checkpoint is of round {saved.round}, not of the round that its name says")
        return saved.round, saved.state

    def _stamp(self) -> str:
        """config.json is written once, so its digest names the run for ever."""
        if not self._digest:
            self._digest = hashlib.sha256((self.path / "config.json").read_bytes()).hexdigest()
        return self._digest

    def _go_back_to(self, number: int) -> None:
        """Drop what was recorded after a checkpoint: those rounds will be done again."""
        for name in SUBFOLDERS:
            (self.path / name).mkdir(exist_ok=True)  # some copies lack those that were empty
        kept = {log: [row for row in read_rows(log) if row["round"] <= number] for log in self._logs()}
        for log, rows in kept.items():  # once all were read: damage in one of them changes nothing
            write_atomically(log, "".join(json.dumps(r) + "\n" for r in rows).encode())
        for path, _, last in _numbered(self.path / "trace"):
            if last > number:
                path.unlink()
        for path, when, _ in _numbered(self.path / "splits"):
            if when > number:
                path.unlink()

    # Results

    def save_split(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        write_atomically(self.path / "splits" / f"{name}.npz", npz_bytes(arrays))

    def save_tree(self, tree: list[dict[str, Any]]) -> None:
        write_atomically(self.path / "splits" / "tree.json", json.dumps(tree, indent=2).encode())

    def save_clusters(
        self, labels: NDArray[Any], groups: NDArray[Any] | None, counts: NDArray[Any] | None, names: Sequence[str] = ()
    ) -> None:
        """labels.csv and counts.csv, as `fedgwc score` reads them. Where clients have names, labels.csv tells them last.

        Where class counts are unknown there is no counts.csv, nor one of a time when they were known.
        """
        columns = {"client": range(len(labels)), "cluster": labels, "group": [""] * len(labels) if groups is None else groups}
        if names:
            columns["name"] = [csv_cell(name) for name in names]
        write_atomically(self.path / "labels.csv", csv_bytes(columns, zip(*columns.values(), strict=True)))
        if counts is None:
            (self.path / "counts.csv").unlink(missing_ok=True)
            return
        head = ["client", *(f"class_{c}" for c in range(counts.shape[1]))]
        write_atomically(self.path / "counts.csv", csv_bytes(head, ([k, *row] for k, row in enumerate(counts.astype(int)))))

    def save_per_client(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Save how the final models serve each client: `clients` [n] and one array [n] per score."""
        write_atomically(self.path / "per_client.npz", npz_bytes(arrays))

    def save_models(self, numbers: Ids, models: list[dict[str, Tensor]], about: list[dict[str, str]]) -> list[Path]:
        """One file per cluster, under the number that it has everywhere."""
        folder = self.path / "models"
        fresh = folder.with_name(".models.tmp")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        for number, tensors, metadata in zip(numbers.tolist(), models, about, strict=True):
            # One metadata entry: safetensors writes several in no fixed order, and equal runs should be equal files.
            data = safetensors.torch.save({k: v.cpu().contiguous() for k, v in tensors.items()}, {"fedgwc": json.dumps(metadata)})
            write_atomically(fresh / f"cluster-{number}.safetensors", data)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(fresh, folder)
        sync(self.path)
        return sorted(folder.glob("*.safetensors"))


def _numbered(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """The files that are named after rounds, with their two numbers; others are not ours."""
    for path in folder.glob("*.npz"):
        if match := _NUMBERED.fullmatch(path.name):
            yield path, int(match[1]), int(match[2])


def _is_remains(path: Path) -> bool:
    """Tell whether a killed run has left this while it made its folder."""
    if _TEMPORARY.fullmatch(path.name):
        return True
    return path.name == LOCK or (path.name in SUBFOLDERS and path.is_dir() and not any(path.iterdir()))


# A forked worker must not hold the lock: it may outlive its killed parent for a moment, and the run can be resumed at once.
_OPEN: weakref.WeakSet[RunFolder] = weakref.WeakSet()


def _close_all() -> None:
    for folder in list(_OPEN):
        folder.close()


os.register_at_fork(after_in_child=_close_all)
