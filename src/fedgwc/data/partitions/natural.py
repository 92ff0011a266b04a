"""Natural clients: the samples of one writer, user or hospital."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.core.errors import InputError, NotHere
from fedgwc.core.types import Ids
from fedgwc.data.partitions.checks import generator
from fedgwc.data.pool import Pool
from fedgwc.io.npz import read_npz

Column = Annotated[str | None, "npz file with `client`, an id for each sample of the data set; unset: what the data set knows"]


def natural(pool: Pool, rows: Ids, n_clients: int, seed: int, *, column: Column = None) -> list[Ids]:
    """Deal each client all samples of one owner.

    Of more owners than clients a seeded choice is made. Only owners with samples of both kinds are clients.
    """
    owners = pool.owners if column is None else _read(Path(column).expanduser(), len(pool.y))
    if owners is None:
        raise InputError(
            f"the data set {pool.name} does not say whose a sample is; give column=FILE.npz with an array `client` of "
            f"{len(pool.y)} ids, or choose another partition"
        )
    ids, owner = np.unique(owners[rows], return_inverse=True)
    is_test = np.isin(rows, pool.test)
    both = np.flatnonzero(np.bincount(owner[~is_test], minlength=len(ids)) * np.bincount(owner[is_test], minlength=len(ids)))
    if len(both) < n_clients:
        raise InputError(
            f"{n_clients} clients were asked for, and {len(both)} of {len(ids)} owners have samples left to train and to test "
            f"on; set clients to {len(both)} at most"
        )
    chosen = np.sort(generator(seed).choice(both, n_clients, replace=False))
    order = np.argsort(owner, kind="stable")
    begins = np.searchsorted(owner[order], np.arange(len(ids) + 1))
    return [order[begins[k] : begins[k + 1]] for k in chosen]


def _read(path: Path, n_rows: int) -> NDArray[Any]:
    """Read whose each sample of the data set is."""
    if not path.is_file():
        raise NotHere(f"there is no {path}; give column the path of an .npz file with an array `client`")
    found = read_npz(path, ("client",)).get("client")
    if found is None or found.shape != (n_rows,):
        came = "no `client`" if found is None else f"`client` of shape {found.shape}"
        raise InputError(f"{path} has {came}; it needs one id for each of the {n_rows} samples, training samples first")
    return found
