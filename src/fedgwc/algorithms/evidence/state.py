"""The state of the groups: what was seen of clients, who is in which group, and what was decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.evidence.cuts import Evidence as Known
from fedgwc.algorithms.evidence.cuts import axes, gram
from fedgwc.algorithms.evidence.jury import Trial
from fedgwc.algorithms.evidence.views import Blocks
from fedgwc.algorithms.evidence.words import Decision
from fedgwc.algorithms.groups import GroupState
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import Arrays, Observation
from fedgwc.core.types import Floats, Ids

MOST_ON_MAP = 1000  # clients of a group, those seen most often


@dataclass(frozen=True)
class Group:
    """Clients that share a model."""

    id: int
    parent: int | None
    born: int  # the round after which it came to be
    next_look: float  # evidence at which it is looked at again
    looks: int = 0  # of its forebears too
    trial: Trial | None = None


@dataclass(frozen=True)
class Gone:
    """A group that was divided, or merged into another."""

    id: int
    parent: int | None
    born: int
    ended: int
    members: Ids


@dataclass(frozen=True)
class EvidenceState(GroupState):
    groups: tuple[Group, ...]
    label: Ids  # [N]
    sums: NDArray[np.float32]  # [2, N, P] of visits in even and in odd rounds; P is 0 before the first round
    visits: Ids  # [2, N]
    turns: Ids  # [N] visits since the client came into its group
    ballots: Floats  # [N, G] log likelihood of its held-out samples under every group's model; NaN: not asked
    blocks: Blocks = field(default_factory=Blocks)
    gone: tuple[Gone, ...] = ()
    n_born: int = 1
    validates: bool | None = None  # whether clients hold validation samples; None: not known yet
    decisions: tuple[Decision, ...] = ()  # of the last round
    maps: dict[str, dict[str, NDArray[Any]]] = field(default_factory=dict)  # of the last round's decisions

    def labels(self) -> Ids:
        return self.label

    def numbers(self) -> Ids:
        return np.array([g.id for g in self.groups], np.int64)

    def copied(self) -> EvidenceState:
        return replace(
            self,
            sums=self.sums.copy(),
            visits=self.visits.copy(),
            turns=self.turns.copy(),
            label=self.label.copy(),
            ballots=self.ballots.copy(),
        )

    def with_layout(self, layout: Layout) -> EvidenceState:
        return replace(self, blocks=Blocks.of(layout))

    def members(self, i: int) -> Ids:
        return np.flatnonzero(self.label == i)

    def known(self, clients: Ids) -> Known:
        """Return the evidence of clients that were seen in both halves."""
        visits = self.visits[:, clients].astype(np.float64)
        return Known(self.sums[:, clients] / visits[..., None].clip(min=1), visits)

    def seen_in_both(self, i: int) -> Ids:
        members = self.members(i)
        return np.asarray(members[self.visits[:, members].min(0) > 0])

    def observe(self) -> Observation:
        trials = sum(g.trial is not None for g in self.groups)
        numbers = {"looks": float(max(g.looks for g in self.groups)), "trials": float(trials)}
        return Observation(numbers, self.maps, [vars(decision) for decision in self.decisions])

    def tree(self) -> list[dict[str, Any]]:
        now = [(g.id, g.parent, g.born, None, self.members(i)) for i, g in enumerate(self.groups)]
        past = [(g.id, g.parent, g.born, g.ended, g.members) for g in self.gone]
        keys = ("id", "parent", "born", "ended", "members")
        rows = [dict(zip(keys, (*node[:4], node[4].tolist()), strict=True)) | {"scores": {}} for node in [*now, *past]]
        return sorted(rows, key=lambda row: row["id"])

    def matrices(self) -> Mapping[str, Arrays]:
        """Return a map of each group's clients."""
        return {f"end-{g.id}": self.map_of(self.members(i)) for i, g in enumerate(self.groups)}

    def map_of(self, members: Ids, labels: Ids | None = None) -> dict[str, NDArray[Any]]:
        """Place clients on the two leading axes, once by each half of the visits.

        The line between a client's two places is its noise.
        """
        seen = members[self.visits[:, members].min(0) > 0]
        if len(seen) > MOST_ON_MAP:
            seen = np.sort(seen[np.argsort(-self.visits[:, seen].min(0), kind="stable")[:MOST_ON_MAP]])
        placed: dict[str, NDArray[Any]] = {"members": members, "mapped": seen}
        if labels is not None:
            placed["labels"] = labels
        if len(seen) > 2 and self.sums.shape[2]:
            means = self.known(seen).means
            means = means - means.mean(1, keepdims=True)
            values, places = axes(gram(*means))
            unit = places[:, :2] / np.sqrt(values[:2].clip(min=1e-30))
            direction = unit.T @ means.mean(0)
            length = np.linalg.norm(direction, axis=1, keepdims=True).clip(min=1e-30)
            placed |= {"even": means[0] @ (direction / length).T, "odd": means[1] @ (direction / length).T}
        return placed


def spread_by_layer(known: Known, labels: Ids, blocks: int) -> Floats:
    """Return the share [L] of clients' differences, layer by layer, that lie between groups.

    Estimated between halves, so noise does not count; clipped to 0 and 1.
    """
    means = known.means - known.means.mean(1, keepdims=True)
    between = np.zeros_like(means)
    for j in np.unique(labels):
        between[:, labels == j] = means[:, labels == j].mean(1, keepdims=True)
    parts = [np.array_split((x[0] * x[1]).sum(0), blocks) for x in (between, means)]
    shares = [b.sum() / max(a.sum(), 1e-30) for b, a in zip(*parts, strict=True)]
    return np.asarray(np.clip(shares, 0.0, 1.0))
