"""From one pool of samples to a federation: groups of clients, each with its own partition and its own domain."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids
from fedgwc.data import shifts
from fedgwc.data.federation import Federation
from fedgwc.data.partitions import draws as partitions
from fedgwc.data.rows import Rows

MOST_NOISE = 1_000_000  # deviations: of the sample nothing is left, and the sum is still a 32-bit number


@dataclass(frozen=True)
class Pool:
    """A data set before it is dealt out."""

    x: Tensor  # [R, ...]
    y: Tensor  # [R]
    train: Ids  # rows that may be trained on
    test: Ids
    n_classes: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    name: str = "pool"


@dataclass(frozen=True)
class Group:
    """Clients that are alike. `Group(85)` and `Group(15, relabel=1)` make the default federation."""

    clients: Annotated[int, "how many"]
    partition: Annotated[Literal["iid", "dirichlet", "shards"], "how classes are dealt out to them"] = "iid"
    alpha: Annotated[float | None, "of the Dirichlet partition; 0: one class per client; unset: 0.5"] = None
    shards: Annotated[int | None, "per client, of the shards partition; unset: 2"] = None
    train_size: Annotated[int | None, "training samples per client; unset: the federation's"] = None
    test_size: Annotated[int | None, "test samples per client, likewise"] = None
    noise: Annotated[float, "standard deviation, after normalisation"] = 0.0
    blur: Annotated[float, "sigma in pixels"] = 0.0
    rotate: Annotated[float, "degrees"] = 0.0
    relabel: Annotated[int, "added to each label, modulo the number of classes"] = 0

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise InputError(f"a group needs at least one client, got clients={self.clients}")
        if not (0 <= self.noise <= MOST_NOISE and 0 <= self.blur < math.inf and math.isfinite(self.rotate)):
            raise InputError(
                f"noise must be in 0..{MOST_NOISE:,}, blur >= 0 and finite and rotate finite, "
                f"got {self.noise}, {self.blur} and {self.rotate}; 0 turns them off"
            )
        for name, partition in (("alpha", "dirichlet"), ("shards", "shards")):
            if getattr(self, name) is not None and self.partition != partition:
                raise InputError(
                    f"a group's {name} needs partition={partition}, got {self.partition}; change that or leave {name} out"
                )


def federate(
    pool: Pool, groups: tuple[Group, ...], train_size: int, test_size: int, seed: int, *, augment: bool = False
) -> Federation:
    """Deal `pool` out to the clients of `groups`, in order, without replacement.

    Test sets have the class shares of training sets, as in the partitions that FedGWC's authors published; of clients that
    are dealt to at random (iid), they are dealt at random too.
    """
    train, test = _Dealer(pool, pool.train, seed), _Dealer(pool, pool.test, seed + 2**31)
    test_sizes = [group.test_size or test_size for group in groups]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for g, group in enumerate(groups):
            train.deal(g, group, group.train_size or train_size)
        for g, group in enumerate(groups):
            if group.partition == "iid":
                test.deal(g, group, test_sizes[g])
        test.follow(train, {g: test_sizes[g] for g, group in enumerate(groups) if group.partition != "iid"})
    notes = tuple(str(w.message) for w in caught)
    federation = Federation(
        pool.x,
        pool.y,
        Rows.of([hand for g in range(len(groups)) for hand in train.hands[g]]),
        Rows.of([hand for g in range(len(groups)) for hand in test.hands[g]]),
        pool.n_classes,
        np.repeat(np.arange(len(groups)), [group.clients for group in groups]) if len(groups) > 1 else None,
        pool.mean,
        pool.std,
        augment,
        pool.name,
        notes,
    )
    return _shifted(federation, pool.x, groups, seed)


class _Dealer:
    """Hands out rows of one split; what one group took, the next cannot get."""

    def __init__(self, pool: Pool, rows: Ids, seed: int) -> None:
        self.labels, self.free, self.seed = pool.y.numpy(), rows, seed
        self.n_classes = pool.n_classes
        self.hands: dict[int, list[Ids]] = {}  # of each group

    def deal(self, g: int, group: Group, size: int) -> None:
        """To the clients of group `g`, as its partition says."""
        labels, seed = self.labels[self.free], self._seed(g)
        if group.partition == "dirichlet":
            picked, _ = partitions.dirichlet(labels, group.clients, 0.5 if group.alpha is None else group.alpha, size, seed)
        elif group.partition == "shards":
            picked = partitions.shards(labels, group.clients, 2 if group.shards is None else group.shards, size, seed)
        else:
            picked = partitions.iid(len(labels), group.clients, size, seed)
        self.hands[g] = [self.free[rows] for rows in picked]
        self.free = np.delete(self.free, np.concatenate(picked))

    def follow(self, train: _Dealer, sizes: dict[int, int]) -> None:
        """To the clients of these groups, so many each, in the class shares of what another dealer gave them.

        All at once, since groups may want the same classes.
        """
        clients = [(g, hand) for g in sizes for hand in train.hands[g]]
        if not clients:
            return
        counts = [np.bincount(self.labels[hand], minlength=self.n_classes) for _, hand in clients]
        picked = partitions.alike(self.labels[self.free], counts, [sizes[g] for g, _ in clients], self._seed(*sizes))
        for g in sizes:
            self.hands[g] = [self.free[rows] for (owner, _), rows in zip(clients, picked, strict=True) if owner == g]

    def _seed(self, *numbers: int) -> int:
        return int(np.random.SeedSequence([self.seed, *numbers]).generate_state(1)[0])


def _shifted(federation: Federation, x: Tensor, groups: tuple[Group, ...], seed: int) -> Federation:
    """Each group's rows seen through its own domain. Every row belongs to one client, so the pool itself is rewritten."""
    if not any(g.noise or g.blur or g.rotate or g.relabel for g in groups):
        return federation
    x, y = x.clone(), federation.y.clone()
    owner = np.repeat(np.arange(len(groups)), [g.clients for g in groups])
    parts = {g: torch.from_numpy(_rows_of(federation, np.flatnonzero(owner == g))) for g in range(len(groups))}
    for g, group in enumerate(groups):
        rows = parts[g]
        if group.blur:
            x[rows] = shifts.blurred(x[rows], group.blur)
        if group.rotate:
            x[rows] = shifts.rotated(x[rows], group.rotate)
        if group.relabel:
            y[rows] = shifts.relabelled(y[rows], group.relabel, federation.n_classes)
    if any(g.noise for g in groups):  # noise needs finer steps than a byte has
        x = x.to(torch.float32) / 255 if x.dtype == torch.uint8 else x.to(torch.float32)
        for g, group in enumerate(groups):
            if group.noise:
                x[parts[g]] = shifts.noisy(x[parts[g]], group.noise, seed + g, federation.std)
    return replace(federation, x=x, y=y)


def _rows_of(federation: Federation, clients: Ids) -> Ids:
    return np.concatenate([federation.rows(split)[k] for split in ("train", "test") for k in clients])
