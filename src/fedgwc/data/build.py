"""Building a federation from one pool of samples.

Groups of clients, each with its own partition and its own shifts.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids
from fedgwc.data.federation import Federation
from fedgwc.data.groups import Group
from fedgwc.data.partitions import PARTITIONS, deal, takes
from fedgwc.data.partitions.same_shares import same_shares
from fedgwc.data.pool import Pool
from fedgwc.data.rows import Rows
from fedgwc.data.shifts import SHIFTS, Samples, as_floats


def federate(
    pool: Pool, groups: tuple[Group, ...], train_size: int, test_size: int, seed: int, *, augment: bool = False
) -> Federation:
    """Deal `pool` out to the clients of `groups`, in order, without replacement.

    `train_size` is the mean where a partition decides the sizes. Test sets have the class shares of training sets, as in the
    partitions that FedGWC's authors published; those of clients whose samples are drawn at random are drawn at random too.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train, test = _deal_all(pool, groups, train_size, test_size, seed)
    x, y = _apply_shifts(pool, groups, train, test, seed)
    return Federation(
        x,
        y,
        Rows.of([mine for hands in train for mine in hands]),
        Rows.of([mine for hands in test for mine in hands]),
        pool.n_classes,
        np.repeat(np.arange(len(groups)), [group.clients for group in groups]) if len(groups) > 1 else None,
        pool.mean,
        pool.std,
        augment,
        pool.name,
        (*(str(w.message) for w in caught), *_size_notes(groups)),
    )


Hands = list[list[Ids]]  # of each group, of each of its clients: the rows


def _deal_all(pool: Pool, groups: Sequence[Group], train_size: int, test_size: int, seed: int) -> tuple[Hands, Hands]:
    """Deal training samples group by group, then test samples."""
    train, test = _Dealer(pool, pool.train, seed), _Dealer(pool, pool.test, seed + 2**31)
    sizes = [group.test_size or test_size for group in groups]
    takes_what = [{name for name in ("size", "labels") if takes(PARTITIONS[g.partition], name)} for g in groups]
    for g, group in enumerate(groups):
        if "size" in takes_what[g]:
            train.deal(g, group, group.train_size or train_size)
        else:
            _deal_both(train, test, g, group)
    for g, group in enumerate(groups):
        if takes_what[g] == {"size"}:
            test.deal(g, Group(group.clients), sizes[g])
    test.deal_same_shares(train, {g: sizes[g] for g, takes_it in enumerate(takes_what) if takes_it == {"size", "labels"}})
    order = range(len(groups))
    return [train.hands[g] for g in order], [test.hands[g] for g in order]


class _Dealer:
    """A dealer of one split's rows, each row once."""

    def __init__(self, pool: Pool, rows: Ids, seed: int) -> None:
        self.pool, self.labels, self.free, self.seed = pool, pool.y.numpy(), rows, seed
        self.hands: dict[int, list[Ids]] = {}  # of each group

    def deal(self, g: int, group: Group, size: int) -> None:
        """Deal to the clients of group `g` by its partition."""
        given = {"labels": self.labels[self.free], "rows": self.free, "pool": self.pool, "size": size, "seed": self.seed_of(g)}
        picked = deal(group.partition, group.dealt, n_clients=group.clients, **given)
        self.take(g, [self.free[mine] for mine in picked])

    def deal_same_shares(self, train: _Dealer, sizes: dict[int, int]) -> None:
        """Deal `sizes` by group, in the class shares of training sets.

        All groups at once, since they may want the same classes.
        """
        clients = [(g, hand) for g in sizes for hand in train.hands[g]]
        if not clients:
            return
        counts = [np.bincount(self.labels[hand], minlength=self.pool.n_classes) for _, hand in clients]
        picked = same_shares(self.labels[self.free], counts, [sizes[g] for g, _ in clients], self.seed_of(*sizes))
        free = self.free
        for g in sizes:
            self.take(g, [free[mine] for (owner, _), mine in zip(clients, picked, strict=True) if owner == g])

    def take(self, g: int, hands: list[Ids]) -> None:
        """Record the samples of group `g`'s clients."""
        self.hands[g] = hands
        self.free = self.free[~np.isin(self.free, np.concatenate(hands))]

    def seed_of(self, *numbers: int) -> int:
        return int(np.random.SeedSequence([self.seed, *numbers]).generate_state(1)[0])


def _deal_both(train: _Dealer, test: _Dealer, g: int, group: Group) -> None:
    """Deal training and test samples at once.

    The partition says whose a sample is, the data set what it is for.
    """
    rows = np.concatenate([train.free, test.free])
    given = {"labels": train.labels[rows], "rows": rows, "pool": train.pool, "seed": train.seed_of(g)}
    picked = deal(group.partition, group.dealt, n_clients=group.clients, **given)
    for dealer, what in ((train, "training"), (test, "test")):
        hands = [rows[mine][np.isin(rows[mine], dealer.free)] for mine in picked]
        if empty := [k for k, mine in enumerate(hands) if not len(mine)]:
            raise InputError(
                f"partition {group.partition} gives client {empty[0]} of group {g} no {what} sample ({len(empty)} such "
                "clients); give it one, or leave the client out"
            )
        dealer.take(g, hands)


def _size_notes(groups: Sequence[Group]) -> list[str]:
    """Say where requested sizes have no effect."""
    return [
        f"the clients of group {g} are as large as partition {group.partition} makes them, whatever train_size and test_size are"
        for g, group in enumerate(groups)
        if not takes(PARTITIONS[group.partition], "size")
    ]


def _apply_shifts(pool: Pool, groups: Sequence[Group], train: Hands, test: Hands, seed: int) -> tuple[Tensor, Tensor]:
    """Return samples and labels with each group's shifts.

    Every row belongs to one client, so the pool itself is rewritten.
    """
    if not any(group.shifts for group in groups):
        return pool.x, pool.y
    x, y = pool.x.clone(), pool.y.clone()
    for g, group in enumerate(groups):
        rows = torch.from_numpy(np.concatenate([*train[g], *test[g]]))
        seen = Samples(pool.x[rows], pool.y[rows], pool.n_classes, pool.std, seed, g)
        for name, value in group.shifts.items():
            seen = SHIFTS[name](seen, value)
        if seen.x.dtype != x.dtype:
            x, seen = as_floats(x), Samples(as_floats(seen.x), seen.y, seen.n_classes)
        x[rows], y[rows] = seen.x, seen.y
    return x, y
