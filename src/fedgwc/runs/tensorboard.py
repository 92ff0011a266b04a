"""TensorBoard: scalars, the tree of clusters and their matrices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.fedgwc.algorithm import FedGWC
from fedgwc.algorithms.method import Method
from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats
from fedgwc.runs.experiment import experiment
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.progress import Watcher

TRACKERS = ("tensorboard",)
AT_THE_END = ("tree.json", "end-*.npz")  # in splits/
PIXELS = 320  # the shorter a side, the larger its pixels


def check_tracker(name: str) -> None:
    """Complain about a missing tracker before a run rather than after it."""
    if name not in TRACKERS:
        raise InputError(f"unknown tracker {name!r}; choose from {', '.join(TRACKERS)}")
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        raise InputError("tracking needs tensorboard: install fedgwc with its extra `track`") from None


class TensorBoard:
    """A watcher that passes everything on and writes it to RUN/tensorboard."""

    def __init__(self, other: Watcher) -> None:
        self.other = other

    def start(self, title: str, n_rounds: int, done: int, folder: Path | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        assert folder is not None  # noqa: S101 - only runs are followed
        self.run, self.number = folder, done
        # What an interrupted run wrote after its checkpoint is dropped.
        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1)
        # A run that is made longer was over before: that is not its end.
        self.seen = {path: _written(path) for name in AT_THE_END for path in (folder / "splits").glob(name)}
        self.other.start(title, n_rounds, done, folder)

    def message(self, text: str) -> None:
        self.other.message(text)

    def round(self, number: int, loss: float, n_clusters: int) -> None:
        self.writer.add_scalar("train/loss", loss, number)
        self.writer.add_scalar("train/clusters", n_clusters, number)
        self.number = number
        self.other.round(number, loss, n_clusters)

    def decided(self, number: int, decision: Mapping[str, Any]) -> None:
        self.other.decided(number, decision)

    def step(self, number: int) -> None:
        self.other.step(number)

    def evaluated(self, row: Mapping[str, Any]) -> None:
        for key, value in row.items():
            if key != "round":
                self.writer.add_scalar(f"test/{key}", value, row["round"])
        self._matrices()
        self.other.evaluated(row)

    def stop(self) -> None:
        """Write the final tree and matrices, if the run is over."""
        for path in filter(self._is_new, (self.run / "splits").glob("tree.json")):
            nodes = json.loads(path.read_text(encoding="utf-8"))
            self.writer.add_text("clusters/tree", tree_text(nodes), self.number)
        self._matrices()
        self.writer.close()
        self.other.stop()

    def _is_new(self, path: Path) -> bool:
        """Tell whether a file was written since the last look."""
        before, self.seen[path] = self.seen.get(path), _written(path)
        return before != self.seen[path]

    def _matrices(self) -> None:
        for path in filter(self._is_new, sorted((self.run / "splits").glob("*.npz"))):
            when, _, cluster = path.stem.partition("-")
            with np.load(path, allow_pickle=False) as file:
                if "P" not in file:
                    continue  # by client: there is no matrix to show
                P, distances, labels = file["P"], file.get("distances"), file.get("labels")
            ranked = np.arange(len(P)) if labels is None else np.argsort(labels, kind="stable")
            name = f"cluster {cluster} {'at the end' if when == 'end' else 'at its split'}"
            for letter, matrix in (("P", P), ("W", self._affinity(P, distances))):
                step = self.number if when == "end" else int(when)
                self.writer.add_image(f"{letter}/{name}", image(matrix[np.ix_(ranked, ranked)]), step, dataformats="HW")

    def _affinity(self, P: Floats, distances: Floats | None) -> Floats:
        a = experiment(RunFolder(self.run).config()["experiment"]).algorithm
        if isinstance(a, Auto):
            return a.affinity(P, distances)
        return a.who.split.affinity(P) if isinstance(a, Method) and isinstance(a.who, FedGWC) else P


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns


def image(P: Floats) -> Any:
    """Draw a matrix [K, K] as shades of grey, enlarged to be seen."""
    low, high = float(P.min()), float(P.max())
    grey = np.uint8(np.round(255 * (P - low) / (high - low))) if high > low else np.zeros(P.shape, np.uint8)
    return np.kron(grey, np.ones((max(1, PIXELS // len(P)),) * 2, np.uint8))


def tree_text(nodes: list[dict[str, Any]]) -> str:
    """Write the tree as an indented list in Markdown."""

    def lines(parent: int | None, depth: int) -> list[str]:
        found = []
        for node in (n for n in nodes if n["parent"] == parent):
            fate = "" if node["ended"] is None else f", split at round {node['ended']}"
            found.append(
                f"{'    ' * depth}* cluster {node['id']}: {len(node['members'])} clients from round {node['born']}{fate}"
            )
            found += lines(node["id"], depth + 1)
        return found

    return "\n".join(lines(None, 0))
