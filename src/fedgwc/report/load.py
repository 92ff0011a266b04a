"""Reading a finished run's folder as plain data.

Everything here was written by somebody else and is checked before it is used.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.auto.state import Verdict
from fedgwc.comparison.gains import NEW
from fedgwc.core.errors import InputError
from fedgwc.core.settings import call
from fedgwc.core.text import readable
from fedgwc.core.types import Floats, Ids
from fedgwc.io.npz import read_npz
from fedgwc.metrics.inputs import histogram
from fedgwc.report.data import Judged, Matrix, Node, Run
from fedgwc.runs.folder import VERDICTS, RunFolder


def load(path: Path) -> Run:
    """Read a finished run; anything missing or damaged is an InputError that names the file."""
    folder = RunFolder(path)
    config = folder.config()
    with _reading(path / "metrics.jsonl"):
        metrics = [_numbers(row) for row in folder.metrics()]
    if not metrics or not (path / "labels.csv").is_file():
        raise InputError(f"{path} holds a run that is not finished; finish it with: fedgwc run --resume --out {path}")
    fields = read_npz(path / "clients.npz")
    with _reading(path / "clients.npz"):
        sizes, counts = _samples(fields)
        truth = _truth(fields.get("truth"), len(sizes))
        names = _names(fields.get("names"), len(sizes))
    nodes = _tree(path / "splits" / "tree.json", len(sizes))
    clusters = _labels(path / "labels.csv", len(sizes), nodes)
    matrices = tuple(_matrix(p, len(sizes)) for p in sorted((path / "splits").glob("*.npz")))
    per_client = _per_client(path / "per_client.npz", len(sizes))
    with _reading(path / VERDICTS):
        verdicts = tuple(_judged(row) for row in folder.verdicts())
    return Run(path, config, metrics, clusters, truth, sizes, counts, nodes, matrices, per_client, verdicts, names)


def _samples(fields: Mapping[str, NDArray[Any]]) -> tuple[Ids, Floats | None]:
    """Return each client's samples [N], and per class [N, C].

    Clients need not report their classes.
    """
    sizes = fields["sizes"]
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu":
        raise ValueError(f"sizes must be one whole number per client, got {sizes.dtype} of shape {sizes.shape}")
    if "counts" not in fields:
        return sizes.astype(np.int64), None
    counts = np.asarray(fields["counts"], np.float64)
    if counts.ndim != 2 or len(counts) != len(sizes) or not np.isfinite(counts).all():
        raise ValueError(f"counts must be [clients, classes], got shape {counts.shape}")
    return sizes.astype(np.int64), histogram(counts)


def _judged(row: dict[str, Any]) -> Judged:
    """Read a verdict on a window.

    `divides` only repeats what the reason says.
    """
    fields = {k: v for k, v in row.items() if k not in ("round", "divides", "why")}
    verdict = call(Verdict, fields, "a verdict")
    seen = [x for name, x in vars(verdict).items() if name != "wanted"]  # which is a setting, and may be anything
    numbers = [x for x in (row["round"], *seen, *verdict.sizes) if isinstance(x, int | float)]
    if not all(abs(x) < 2**31 for x in numbers):
        raise ValueError(f"a verdict needs numbers of ordinary size, got {numbers}")
    return Judged(row["round"], verdict, str(row["why"]))


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """Read the numbers of one evaluation.

    Other values are not for reports.
    """
    return {str(k): v for k, v in row.items() if isinstance(v, int | float) and not isinstance(v, bool)}


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {type(error).__name__}: {error}") from None


def _truth(groups: NDArray[Any] | None, n_clients: int) -> Ids | None:
    if groups is None or groups.shape != (n_clients,) or len(np.unique(groups)) < 2:
        return None  # one group for all says nothing
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def _names(names: NDArray[Any] | None, n_clients: int) -> tuple[str, ...]:
    if names is None or names.shape != (n_clients,) or names.dtype.kind != "U":
        return ()
    return readable(names.tolist())


def _tree(path: Path, n_clients: int) -> tuple[Node, ...]:
    if not path.is_file():
        return ()
    with _reading(path):
        nodes = tuple(_node(row, n_clients) for row in json.loads(path.read_text(encoding="utf-8")))
        ids = {n.id for n in nodes}
        if any(not 0 <= n < 2**31 for n in ids):
            raise ValueError("clusters are numbered from 0")
        if len(ids) < len(nodes) or any(n.parent is not None and not (n.parent in ids and n.parent < n.id) for n in nodes):
            raise ValueError("clusters must have different numbers, and parents come before their children")
        leaves = np.concatenate([n.members for n in nodes if n.ended is None])
        if not np.array_equal(np.sort(leaves), np.arange(n_clients)):
            raise ValueError(f"every one of the {n_clients} clients must be in exactly one leaf")
        return nodes


def _node(row: dict[str, Any], n_clients: int) -> Node:
    parent, ended, cosine = row["parent"], row["ended"], row.get("cross_similarity")
    scores = {int(n): float(score) for n, score in row["scores"].items()}
    return Node(
        int(row["id"]),
        None if parent is None else int(parent),
        int(row["born"]),
        None if ended is None else int(ended),
        _members(row["members"], n_clients),
        scores,
        None if cosine is None else float(cosine),
    )


def _members(listed: Any, n_clients: int) -> Ids:
    members = np.asarray(listed)
    if members.ndim != 1 or members.dtype.kind not in "iu" or not len(members) or members.min() < 0 or members.max() >= n_clients:
        raise ValueError(f"members must be client numbers in 0..{n_clients - 1}")
    return members.astype(np.int64)


def _labels(path: Path, n_clients: int, nodes: tuple[Node, ...]) -> Ids:
    """Read the cluster of each client [N].

    In whatever order the file has them.
    """
    with _reading(path), path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
        clients, labels = (np.array([int(row[column]) for row in rows], np.int64) for column in ("client", "cluster"))
        if not np.array_equal(np.sort(clients), np.arange(n_clients)) or labels.min() < 0:
            raise ValueError(f"each of the {n_clients} clients needs one line with its cluster")
        labels = labels[np.argsort(clients)]
        if any(node.ended is None and (labels[node.members] != node.id).any() for node in nodes):
            raise ValueError("its clusters are not those of splits/tree.json")
        return labels


def _matrix(path: Path, n_clients: int) -> Matrix:
    arrays = read_npz(path)
    with _reading(path):
        when, _, name = path.stem.partition("-")
        members = _members(arrays["members"], n_clients)
        one, pairs = members.shape, 2 * members.shape
        fits = {"labels": one, "gamma": one, "gamma2": one, "P": pairs, "distances": pairs, "echo": pairs}
        fits["visits"] = pairs if "P" in arrays else one
        fits["paths"] = (*one, arrays["paths"].shape[-1]) if "paths" in arrays else one
        fields = {key: arrays[key] for key in fits if key in arrays}
        for key, value in fields.items():
            if value.shape != fits[key]:
                raise ValueError(f"{key} does not fit {len(members)} members, its shape is {value.shape}")
            if key in ("P", "distances", "paths", "echo") and not (value.dtype.kind == "f" and np.isfinite(value).all()):
                raise ValueError(f"{key} must be finite numbers")
        return Matrix(int(name), None if when == "end" else int(when), members, **fields)


def _per_client(path: Path, n_clients: int) -> dict[str, NDArray[Any]] | None:
    """Read the scores per client; runs of older versions have none."""
    if not path.is_file():
        return None
    arrays = read_npz(path)
    with _reading(path):
        clients = _members(arrays["clients"], n_clients)
        new = {name: array for name, array in arrays.items() if name.startswith(NEW)}
        _check_per_client({name: array for name, array in arrays.items() if name not in new}, len(clients))
        if new:
            _check_per_client({name.removeprefix(NEW): array for name, array in new.items()}, len(new[f"{NEW}clients"]))
        return arrays


def _check_per_client(arrays: Mapping[str, NDArray[Any]], n: int) -> None:
    """Check that arrays hold a number per client, and hits one per test sample."""
    hits, offsets = arrays.get("hits"), arrays.get("hits_offsets")
    numbers = [array for name, array in arrays.items() if name not in ("hits", "hits_offsets")]
    if any(a.shape != (n,) or a.dtype.kind not in "iuf" for a in numbers):
        raise ValueError("all arrays must hold one number per client")
    if (hits is None) != (offsets is None):
        raise ValueError("hits and hits_offsets belong together")
    if hits is None or offsets is None:
        return
    if offsets.shape != (n + 1,) or offsets.dtype.kind not in "iu" or offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
        raise ValueError("hits_offsets must say where each client's test samples begin and end")
    if hits.shape != (offsets[-1],) or hits.dtype.kind not in "biu" or not np.isin(hits, (0, 1)).all():
        raise ValueError("hits must be 0 or 1 for each test sample")
