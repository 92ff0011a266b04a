"""Samples and clients that are held out of training.

Validation samples come out of each client's training samples, for whatever is selected. Newcomers are clients whom training
never sees, to tell how a federation serves those who come later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from fedgwc.core.errors import InputError
from fedgwc.core.text import plural
from fedgwc.core.types import Ids
from fedgwc.data.federation import Federation

FEWEST = 5  # training samples of a client that can spare one
_VALIDATION, _NEWCOMERS = 1, 2  # streams of random numbers


@dataclass(frozen=True)
class Splits:
    """Shares that are held out of training; 0: none."""

    validation: Annotated[float, "share of each client's training samples that is held out, for all that is selected"] = 0.2
    newcomers: Annotated[float, "share of the clients whom training never sees, rounded down"] = 0.1

    def __post_init__(self) -> None:
        for name, share in vars(self).items():
            if not 0 <= share < 1:
                raise InputError(f"data.{name} must be at least 0 and below 1, got {share}; 0 holds nothing out")


def hold_out(federation: Federation, splits: Splits, seed: int) -> Federation:
    """Hold validation samples and newcomers out of training.

    What the federation already holds out stays as it is.
    """
    if splits.validation and federation.validation is None:
        federation = _with_validation(federation, splits.validation, np.random.default_rng([seed, _VALIDATION]))
    n_new = int(splits.newcomers * federation.n_clients)
    if n_new and federation.newcomers is None:
        new = np.random.default_rng([seed, _NEWCOMERS]).choice(federation.n_clients, n_new, replace=False)
        federation = without_newcomers(federation, np.sort(new))
    return federation


def without_newcomers(federation: Federation, new: Ids) -> Federation:
    """Take the clients `new` out of training, to be newcomers."""
    stay = np.setdiff1d(np.arange(federation.n_clients), new)
    note = f"{plural(len(new), 'client')} of {federation.n_clients} are newcomers, whom training never sees (data.newcomers)"
    left = federation.of_clients(stay)
    return replace(left, newcomers=federation.of_clients(new), notes=(*federation.notes, note))


def _with_validation(federation: Federation, share: float, rng: np.random.Generator) -> Federation:
    rows = federation.train
    n_held = held_out_counts(rows.sizes, share)
    random_order = np.lexsort((rng.random(len(rows.flat)), rows.owner))
    place = np.empty(len(rows.flat), np.int64)  # of each row among its client's, at random
    place[random_order] = np.arange(len(rows.flat)) - np.repeat(rows.offsets[:-1], rows.sizes)
    held = place < np.repeat(n_held, rows.sizes)
    small = int((n_held == 0).sum())
    too_few = f"{plural(small, 'client')} of fewer than {FEWEST} training samples keep all and have none for validation"
    notes = (*federation.notes, too_few) if small else federation.notes
    return replace(federation, train=rows.where(~held), validation=rows.where(held), notes=notes)


def held_out_counts(sizes: Ids, share: float) -> Ids:
    """Count each client's validation samples [N].

    At least one where there are five, and never all.

    >>> held_out_counts(np.array([4, 5, 12, 100]), 0.2).tolist()
    [0, 1, 2, 20]
    """
    wanted = np.maximum(np.rint(share * sizes), 1)
    return np.where(sizes < FEWEST, 0, np.minimum(wanted, sizes - 1)).astype(np.int64)
