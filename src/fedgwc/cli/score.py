"""`fedgwc score`: all clustering metrics for clusters from any source."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from fedgwc.core.errors import InputError
from fedgwc.core.text import plural
from fedgwc.core.types import Floats
from fedgwc.io.files import regular_file
from fedgwc.metrics.table import clustering_scores
from fedgwc.runs.tables import Table, show

UNKNOWN = (
    "class counts are unknown where clients do not tell them, and WAS and WADB cannot do without; over Flower they are known if "
    "every node has share-class-counts=true in its node-config"
)
LARGEST = 64 * 2**20  # bytes; a table of 20,000 clients and 1,000 classes is smaller


def score_command(counts_path: Path, labels_path: Path) -> None:
    counts = read_counts(counts_path)
    labels, truth = read_labels(labels_path)
    if set(counts) != set(labels):
        odd = sorted(set(counts) ^ set(labels))[0]
        raise InputError(f"{counts_path} and {labels_path} must name the same clients; {odd!r} is in one of them only")
    order = list(counts)
    matrix = np.array([counts[c] for c in order])
    numbered = np.unique([labels[c] for c in order], return_inverse=True)[1].astype(np.int64)
    groups = np.unique([truth[c] for c in order], return_inverse=True)[1].astype(np.int64) if truth else None
    sizes = " ".join(map(str, np.bincount(numbered)))
    print(f"{plural(len(order), 'client')}, {matrix.shape[1]} classes, {plural(numbered.max() + 1, 'cluster')} of {sizes}\n")
    scores = clustering_scores(numbered, matrix, groups)
    rows = [
        [title, f"{scores[k]:z.4f}" if k in scores else "–", note] for k, title, note in METRICS if k in scores or k[0] == "w"
    ]
    show(Table(["metric", "value", ""], rows))
    if numbered.max() == 0:
        print("\nOne cluster only: WAS and WADB compare clusters, so they are not defined here.")


METRICS = (
    ("was", "Wasserstein adjusted silhouette (WAS)", "-1 to 1, higher is better"),
    ("wadb", "Wasserstein adjusted Davies-Bouldin (WADB)", "0 and up, lower is better"),
    ("rand", "Rand index", "0 to 1, higher is better; flatters when there are many pairs apart"),
    ("ari", "adjusted Rand index", "up to 1, 0 is chance"),
)


def read_counts(path: Path) -> dict[str, Floats]:
    """Read clients' numbers of samples per class.

    A header, then per line a client and its number of samples in each class.
    """
    if path.name == "counts.csv" and not path.exists() and (path.parent / "clients.npz").is_file():
        raise InputError(f"this run has no {path}: {UNKNOWN}")
    head, rows = _table(path)
    if len(head) < 3:
        raise InputError(
            f"{path} needs a client column and at least two class columns, got {','.join(head)}; if its one column "
            f"is all samples of a client: {UNKNOWN}"
        )
    try:
        counts = {row[0]: np.array(row[1:], np.float64) for row in rows}
    except ValueError:
        raise InputError(f"{path}: class counts must be numbers, for example 'client,class_0,class_1' then '0,12,3'") from None
    return counts


def read_labels(path: Path) -> tuple[dict[str, str], dict[str, str] | None]:
    """Read clients' clusters and true groups, or None.

    A header, then per line a client, its cluster, perhaps its true group and its name.
    """
    head, rows = _table(path)
    if len(head) < 2 or head[3:] not in ([], ["name"]):
        raise InputError(f"{path} must have the columns client,cluster and perhaps group and name, got {','.join(head)}")
    labels = {row[0]: row[1] for row in rows}
    has_groups = len(head) > 2 and all(row[2] for row in rows)
    return labels, {row[0]: row[2] for row in rows} if has_groups else None


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    if regular_file(path).exists() and path.stat().st_size > LARGEST:
        raise InputError(f"{path} is larger than {LARGEST // 2**20} MiB, which no table of clients is")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as csv: {error}") from None
    if len(lines) < 2 or any(len(line) != len(lines[0]) for line in lines):
        raise InputError(f"{path} must have a header line and, below it, lines of the same length, at least one")
    clients = [line[0] for line in lines[1:]]
    if len(set(clients)) < len(clients):
        raise InputError(f"{path} names a client twice")
    return lines[0], lines[1:]
