"""Twelve clients of two kinds that no single model can serve: the same blobs, which a minority calls by shifted names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedgwc.runs.formats import FORMAT

SHIFTED = (1, 5, 6, 9)  # at least three of them live on any two of the nodes 0-3, 4-7, 8-11
TRUTH = np.isin(np.arange(12), SHIFTED).astype(int)
SPLITS_ONCE = {"eps": 0.6, "n_max": 2, "min_size": 4, "score": "embedding", "assign": "cluster_qr"}


def write(path: Path, n_clients: int = 12, per_class: int = 12) -> None:
    """x, y, client, group: every client has as many samples of each of four tight blobs, so that losses differ by kind only."""
    rng = np.random.default_rng(0)
    centres = 2 * rng.standard_normal((4, 8))
    blob = np.tile(np.repeat(np.arange(4), per_class), n_clients)
    client = np.repeat(np.arange(n_clients), 4 * per_class)
    shifted = np.isin(client, SHIFTED)
    x = (centres[blob] + 0.3 * rng.standard_normal((len(blob), 8))).astype(np.float32)
    np.savez(path, x=x, y=(blob + shifted) % 4, client=client, group=shifted.astype(int))


def tables(path: Path, rounds: int = 12, **algorithm: Any) -> dict[str, Any]:
    """Return a recipe for them: everybody trains in every round, and FedGWC splits once unless another algorithm is named."""
    return {
        "format": FORMAT,
        "rounds": rounds,
        "data": {"name": "arrays", "path": str(path), "test_share": 0.25, "validation": 0.0, "newcomers": 0.0},
        "model": {"name": "mlp", "hidden": [16]},
        "local": {"steps": 8, "batch": 36, "lr": 0.1},
        "algorithm": {"rate": 1.0} | (algorithm if "name" in algorithm else {"name": "fedgwc", **SPLITS_ONCE, **algorithm}),
    }
