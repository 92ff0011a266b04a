"""The federation's clients: a lasting number for each, the node that serves it now, and its record of bad replies."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from fedgwc.core.types import Ids

log = logging.getLogger("fedgwc")

LONGEST_REST = 16  # rounds for which a node that keeps silent is not asked


@dataclass(frozen=True)
class Members:
    """The part of a roster that a checkpoint keeps. Nodes are not in it: they are asked again whom they serve."""

    names: tuple[str, ...]  # N, in the order of the clients' numbers
    strikes: Ids  # [N] invalid replies in a row
    invalid: Ids  # [N] invalid replies in all
    excluded: tuple[str, ...]  # N, why; empty: it is not
    sizes: Ids  # [N] training samples; 0: never heard
    counts: Ids  # [N, C] class counts of those who consent, else 0


class Roster:
    """The federation as the server sees it at the moment."""

    def __init__(self, strikes: int = 3) -> None:
        self.max_strikes = strikes
        self.names: list[str] = []
        self.node: dict[str, int] = {}  # by name; only nodes that have said whom they serve
        self.silent: set[int] = set()  # nodes that did not answer in time
        self.ask_again: set[int] = set()  # nodes whose app failed: perhaps they serve others by now
        self.missed: dict[int, int] = {}  # by node: exchanges in a row in which it kept silent
        self.resting_until: dict[int, int] = {}  # by node: the round in which it is asked again
        self.round = 0
        self.strikes: dict[int, int] = {}
        self.invalid: dict[int, int] = {}
        self.excluded: dict[int, str] = {}
        self.sizes: dict[int, int] = {}
        self.counts: dict[int, Ids] = {}

    def __len__(self) -> int:
        return len(self.names)

    def add(self, names: list[str]) -> None:
        """Give clients the next numbers."""
        self.names += names

    def assign(self, node: int, names: tuple[str, ...]) -> tuple[str, ...]:
        """Assign clients to a node; return those that another live node keeps."""
        self.silent.discard(node)
        self.ask_again.discard(node)
        taken = [n for n in names if self.node.get(n, node) != node and self.node[n] not in self.silent]
        for name in names:
            if name not in taken:
                self.node[name] = node
        return tuple(taken)

    def release(self, node: int, still_served: tuple[str, ...]) -> None:
        """Take away clients that a node no longer serves."""
        self.node = {name: at for name, at in self.node.items() if at != node or name in still_served}

    def no_answer(self, node: int) -> None:
        """Note that everybody waited for a node in vain.

        Once may happen to anyone; from then on the node is asked in fewer and fewer rounds.
        """
        if node not in self.silent:
            self.missed[node] = missed = self.missed.get(node, 0) + 1
            if missed == 2:
                log.warning("node %d came back and kept silent again: it rests for 1, 2, 4, ... rounds until it answers", node)
            if missed > 1:
                self.resting_until[node] = self.round + 1 + min(2 ** (missed - 2), LONGEST_REST)
        self.mark_absent(node)

    def answered(self, node: int) -> None:
        """Note that a node has answered."""
        self.missed.pop(node, None)
        self.resting_until.pop(node, None)

    def is_reachable(self, node: int) -> bool:
        """Tell whether a node should be asked now."""
        return node not in self.silent and self.resting_until.get(node, 0) <= self.round

    def mark_absent(self, node: int) -> None:
        """Leave a node's clients out until it answers."""
        if node not in self.silent and self.missed.get(node, 0) <= 1:
            served = [n for n, at in self.node.items() if at == node]
            log.warning("node %d does not answer; its clients sit out until it does: %s", node, ", ".join(served)[:300])
        self.silent.add(node)

    def available(self) -> Ids:
        """Return the numbers [n] of clients that can be asked."""
        return np.array([k for k, name in enumerate(self.names) if k not in self.excluded and self._up(name)], np.int64)

    def _up(self, name: str) -> bool:
        return name in self.node and self.is_reachable(self.node[name])

    # Replies

    def record_valid(self, number: int, size: int, counts: Ids | None) -> None:
        """Clear a client's strikes and keep its sample counts."""
        self.strikes.pop(number, None)
        self.sizes[number] = size
        if counts is not None:
            self.counts[number] = counts

    def record_invalid(self, number: int, reason: str) -> None:
        """Count an invalid reply, and exclude the client after too many."""
        name = self.names[number]
        self.strikes[number] = self.strikes.get(number, 0) + 1
        self.invalid[number] = self.invalid.get(number, 0) + 1
        log.warning("dropped the reply of client %s (%d in a row): %.300s", name, self.strikes[number], reason)
        if self.strikes[number] >= self.max_strikes and number not in self.excluded:
            self.excluded[number] = reason[:300]
            log.error("excluded client %s after %d invalid replies in a row; last: %.300s", name, self.max_strikes, reason)

    # Checkpoints

    def save(self) -> Members:
        """Return what a checkpoint keeps."""
        everybody = range(len(self))
        width = max([len(c) for c in self.counts.values()], default=1)
        counts = np.zeros((len(self), width), np.int64)
        for k, row in self.counts.items():
            counts[k, : len(row)] = row
        return Members(
            tuple(self.names),
            np.array([self.strikes.get(k, 0) for k in everybody], np.int64),
            np.array([self.invalid.get(k, 0) for k in everybody], np.int64),
            tuple(self.excluded.get(k, "") for k in everybody),
            np.array([self.sizes.get(k, 0) for k in everybody], np.int64),
            counts,
        )

    def restore(self, saved: Members) -> None:
        """Go on from a checkpoint."""
        self.names = list(saved.names)
        self.strikes = {k: int(n) for k, n in enumerate(saved.strikes) if n}
        self.invalid = {k: int(n) for k, n in enumerate(saved.invalid) if n}
        self.excluded = {k: why for k, why in enumerate(saved.excluded) if why}
        self.sizes = {k: int(n) for k, n in enumerate(saved.sizes) if n}
        self.counts = {k: row for k, row in enumerate(saved.counts) if row.any()}

    def class_counts(self) -> Ids | None:
        """Return class counts [N, C]; None: not all clients share theirs."""
        return self.save().counts if len(self.counts) == len(self) else None
