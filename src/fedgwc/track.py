"""Following a run elsewhere: scalars, the tree of clusters and their matrices in TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedgwc.algorithms.fedgwc import FedGWC
from fedgwc.core import Floats
from fedgwc.errors import InputError
from fedgwc.experiment import experiment
from fedgwc.progress import Progress
from fedgwc.record import RunFolder

TRACKERS = ("tensorboard",)
PIXELS = 320  # the shorter a side, the larger its pixels


def check_tracker(name: str) -> None:
    """Complain before a run rather than after it."""
    if name not in TRACKERS:
        raise InputError(f"unknown tracker {name!r}; choose from {', '.join(TRACKERS)}")
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        raise InputError("tracking needs tensorboard: install fedgwc with its extra `track`") from None


class TensorBoard:
    """A watcher that passes everything on to another one and writes what it sees to RUN/tensorboard."""

    def __init__(self, run: Path, other: Progress) -> None:
        self.run, self.other = run, other
        self.writer: Any = None
        self.seen: set[str] = set()

    def start(self, title: str, n_rounds: int, done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Opened only now: a run wants its folder empty. What an interrupted run wrote after its checkpoint is dropped.
        self.writer = SummaryWriter(str(self.run / "tensorboard"), purge_step=done + 1)
        self.other.start(title, n_rounds, done)

    def message(self, text: str) -> None:
        self.other.message(text)

    def round(self, number: int, loss: float, n_clusters: int) -> None:
        self.writer.add_scalar("train/loss", loss, number)
        self.writer.add_scalar("train/clusters", n_clusters, number)
        self.other.round(number, loss, n_clusters)

    def evaluated(self, row: Mapping[str, Any]) -> None:
        for key, value in row.items():
            if key != "round":
                self.writer.add_scalar(f"test/{key}", value, row["round"])
        self._matrices(row["round"])
        self.other.evaluated(row)

    def stop(self) -> None:
        self.writer.close()  # the next write opens a new file
        self.other.stop()

    def finish(self, number: int) -> None:
        """What is known only when the run's results are saved: the tree, and the matrices at the end."""
        path = self.run / "splits" / "tree.json"
        if path.is_file():
            nodes = json.loads(path.read_text(encoding="utf-8"))
            self.writer.add_text("clusters/tree", tree_text(nodes), number)
        self._matrices(number)
        self.writer.close()

    def _matrices(self, number: int) -> None:
        for path in sorted((self.run / "splits").glob("*.npz")):
            if path.name in self.seen:
                continue
            self.seen.add(path.name)
            when, _, cluster = path.stem.partition("-")
            with np.load(path, allow_pickle=False) as file:
                if "P" not in file:
                    continue  # by client: there is no matrix to show
                P, distances, labels = file["P"], file.get("distances"), file.get("labels")
            ranked = np.arange(len(P)) if labels is None else np.argsort(labels, kind="stable")
            name = f"cluster {cluster} {'at the end' if when == 'end' else 'at its split'}"
            for letter, matrix in (("P", P), ("W", self._affinity(P, distances))):
                step = number if when == "end" else int(when)
                self.writer.add_image(f"{letter}/{name}", image(matrix[np.ix_(ranked, ranked)]), step, dataformats="HW")

    def _affinity(self, P: Floats, distances: Floats | None) -> Floats:
        a = experiment(RunFolder(self.run).config()["experiment"]).algorithm
        return a.affinity(P, distances) if isinstance(a, FedGWC) else P


def image(P: Floats) -> Any:
    """A matrix [K, K] as shades of grey, enlarged to be seen."""
    low, high = float(P.min()), float(P.max())
    grey = np.uint8(np.round(255 * (P - low) / (high - low))) if high > low else np.zeros(P.shape, np.uint8)
    return np.kron(grey, np.ones((max(1, PIXELS // len(P)),) * 2, np.uint8))


def tree_text(nodes: list[dict[str, Any]]) -> str:
    """The tree as an indented list in Markdown."""

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
