"""What FedGWC knows: clusters, how their members got along, in the present window of rounds and until then, and splits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedgwc.aggregate import Server
from fedgwc.core import Floats, Ids

Reason = Literal[
    "drift",
    "groups",
    "no cut",
    "too early",
    "first cut",
    "agreement",
    "contrast",
    "no groups",
    "chance",
    "moved",
    "confirmed",
    "rejoined",
]


@dataclass(frozen=True)
class Cluster:
    """K clients that share a model, and what is known of how they get along.

    In a large federation that is kept by client in place of pairs of them: what is [K, K] below is [K] then, the diagonal.
    """

    id: int
    parent: int | None
    born: int  # the round after which it came to be
    members: Ids  # [K]
    server: Server
    P: Floats  # [K, K] interaction matrix
    visits: Ids  # [K, K] how often each pair was sampled together; the diagonal counts clients
    gamma: Floats  # [K] Gaussian weights
    gamma2: Floats  # [K] the same running mean of squared rewards, for the interval of gamma
    mse: float = 1.0  # of consecutive P
    calm: int = 0  # rounds in a row with mse < eps
    attempts: int = 0  # to split
    ripe: int = 0  # pairs that have been seen as often as the next attempt asks
    scores: dict[int, float] = field(default_factory=dict)  # Davies-Bouldin by number of groups, of the split that made it
    # Of splits by windows; P, visits and the next nine are of the present window.
    sides: Floats | None = None  # [K, K] kept as P is, of the sides on which losses lie
    spreads: Floats | None = None  # [K, K] likewise, of how restless they are
    between: float = 0.0  # variance of losses between clients, summed over rounds
    within: float = 0.0  # and between the steps of one client
    first: float = 0.0  # losses of clients' first local steps, summed over rounds
    second: float = 0.0  # and of their second ones
    heard: int = 0  # rounds with losses of at least three clients
    apart: int = 0  # of these, rounds in which clients differed by the contrast that a split asks for
    adrift: int = 0  # and rounds in which they drifted as much as one asks for
    differed: bool = False  # so much in half of the rounds of a window that is over: they are of different kinds for good
    told: float = 0.0  # by how much more clients were helped by those on their side of the last cut, summed over rounds
    told2: float = 0.0  # and the squares of that
    distances: Floats | None = None  # [K, K] squared, between perception vectors, summed over the windows that are over
    echo: Floats | None = None  # [K, K] by how much k's first loss was lower than usual after j had trained, summed over rounds
    level: Floats | None = None  # [K] logarithm of the first loss that is usual for a client; NaN: not known yet
    before: Ids | None = None  # the places among the members of who trained in the last round; None: nobody, or not this model
    cut: Ids | None = None  # [K] where the last of these would have divided the cluster
    undone: int = 0  # divisions of it that were tried, and served nobody
    paths: Floats | None = None  # [K, m], by client in place of distances: their means, window by window and view by view
    waiting: Ids | None = None  # clients who do not train before they have said which side of the cut that made it serves them
    witnesses: Ids | None = None  # those of them who show what is usual on their side
    late: Ids | None = None  # [K] windows, this one too, in which a member that has waited catches up, and is not compared

    @property
    def by_pairs(self) -> bool:
        return self.visits.ndim == 2

    @property
    def contrast(self) -> float:
        """How much more clients differ than the batches of one client do; 0: not at all."""
        return self.between / self.within - 1 if self.within > 0 else np.inf

    @property
    def drifts(self) -> bool:
        """Nobody can use the model they share: any division into likes helps, whether or not there are groups."""
        return adrift_in_half(self.adrift, self.heard)

    @property
    def differs(self) -> bool:
        """Clients lose more or less than each other, not just from batch to batch; before any rounds they are taken to."""
        return self.differed or 2 * self.apart >= self.heard

    @property
    def has_differed(self) -> bool:
        """For good: as far as a window tells that has been heard, and not just those few rounds in which most are not late."""
        return self.differed or (not self.some_are_late and 0 < self.heard <= 2 * self.apart)

    @property
    def some_are_late(self) -> bool:
        return self.late is not None and bool(self.late.any())

    @property
    def foretold(self) -> float:
        """By how many deviations better than chance the last cut has told who would help whom, since it was first made."""
        return self.told / self.told2**0.5 if self.told2 > 0 else 0.0

    @property
    def drift(self) -> float:
        """How much more clients lose in their first local step than in the second; 0: no more."""
        return self.first / self.second - 1 if self.second > 0 else np.inf


@dataclass(frozen=True)
class Split:
    """A cluster that is no more."""

    id: int
    parent: int | None
    born: int
    ended: int
    members: Ids  # [K]
    labels: Ids  # [K] which child each went to
    scores: dict[int, float]  # that made this cluster
    undone: int = 0  # divisions of it before
    differed: bool = False  # whether its clients had
    P: Floats | None = None  # [K, K] at the split; kept, with the next, for the one round in which they are news
    distances: Floats | None = None  # [K, K]
    paths: Floats | None = None  # [K, m]
    echo: Floats | None = None  # [K, K]


@dataclass(frozen=True)
class Verdict:
    """What spoke for and against dividing a cluster when a window ended, and what decided. None: not known, or not asked.

    Or what came of a division that was on trial: clients have "moved" to the other side, none had to and it was "confirmed",
    or both sides have "rejoined".
    """

    cluster: int
    clients: int
    reason: Reason  # what decided
    sizes: tuple[int, ...] = ()  # of the two sides of the cut; of those who stayed and those who moved
    score: float | None = None  # Davies-Bouldin of the cut
    gain: float | None = None  # how much better groups describe clients than one does
    wanted: float | None = None  # the gain that was asked for; None where any would do, too
    agreement: float | None = None  # adjusted Rand index with the cut of the window before
    rounds: int = 0  # of the window that told drift and contrast
    drift: float | None = None  # over all of them
    adrift: int = 0  # rounds with as much drift as is asked for
    contrast: float | None = None
    apart: int = 0  # rounds with as much contrast as is asked for
    differed: bool = False  # whether an earlier window had it in half of its rounds
    by_echoes: bool = False  # whether only who helps whom was looked at
    foretold: float | None = None  # deviations by which the last cut told better than chance who would help whom
    to: int | None = None  # the cluster to which they moved, or the other side
    clear: float | None = None  # deviations by which the models of two sides serve their clients differently

    @property
    def divides(self) -> bool:
        return self.reason in ("drift", "groups")

    @property
    def drifts(self) -> bool:
        return adrift_in_half(self.adrift, self.rounds)

    @property
    def differs(self) -> bool:
        return self.differed or 2 * self.apart >= self.rounds


@dataclass(frozen=True)
class FedGWCState:
    clusters: tuple[Cluster, ...]  # the leaves of the tree
    splits: tuple[Split, ...]  # its inner nodes
    sampled: Ids  # [N] rounds each client took part in
    n_born: int = 1
    verdicts: tuple[Verdict, ...] = ()  # of the windows that ended with the last round


def adrift_in_half(adrift: int, rounds: int) -> bool:
    return 0 < rounds <= 2 * adrift


def changed(c: Cluster, new: dict[str, Any]) -> Cluster:
    """`replace`, but fields that stay are not set one by one: every cluster changes in every round."""
    cluster = object.__new__(Cluster)
    vars(cluster).update(vars(c) | new)
    return cluster


def labels_of(state: FedGWCState) -> Ids:
    """[N]: the place in `clusters` of each client's own."""
    members = [c.members for c in state.clusters]
    labels = np.empty(len(state.sampled), np.int64)
    labels[np.concatenate(members)] = np.repeat(np.arange(len(members)), [len(m) for m in members])
    return labels


def copied(state: FedGWCState) -> FedGWCState:
    """With matrices of its own, as far as rounds write to them."""
    clusters = [replace(c, **{k: a.copy() for k, a in written(c).items()}) for c in state.clusters]
    return replace(state, clusters=tuple(clusters), sampled=state.sampled.copy())


def written(c: Cluster) -> dict[str, Any]:
    """What rounds write to, by name: means and counts of the present window, and distances until then."""
    named = {"P": c.P, "visits": c.visits, "sides": c.sides, "spreads": c.spreads, "distances": c.distances, "echo": c.echo}
    return {name: a for name, a in named.items() if a is not None}


# What a run records of it


def recorded_splits(state: FedGWCState) -> dict[str, dict[str, NDArray[Any]]]:
    """Splits of the last round, by the name of the cluster that was split."""
    news = [s for s in state.splits if s.P is not None]
    return {str(s.id): {"members": s.members, "labels": s.labels, **_what_decides(s)} for s in news}


def recorded_leaves(state: FedGWCState) -> dict[str, dict[str, NDArray[Any]]]:
    """Every leaf as it stands."""
    return {
        f"end-{c.id}": {"members": c.members, "visits": c.visits, "gamma": c.gamma, "gamma2": c.gamma2, **_what_decides(c)}
        for c in state.clusters
    }


def recorded_tree(state: FedGWCState) -> list[dict[str, Any]]:
    """All clusters that ever were: id, parent, born, ended (None: a leaf), members, and the scores that made each."""
    ended = [(s.id, s.parent, s.born, s.ended, s.members, s.scores) for s in state.splits]
    alive = [(c.id, c.parent, c.born, None, c.members, c.scores) for c in state.clusters]
    names = ("id", "parent", "born", "ended", "members", "scores")
    rows: list[dict[str, Any]] = [dict(zip(names, node, strict=True)) for node in (*ended, *alive)]
    return sorted(({**r, "members": r["members"].tolist()} for r in rows), key=lambda r: int(r["id"]))


def _what_decides(c: Cluster | Split) -> dict[str, NDArray[Any]]:
    P = c.P if c.P is not None and c.P.ndim == 2 else None  # by client it is gamma
    return {name: a for name, a in {"P": P, "distances": c.distances, "paths": c.paths, "echo": c.echo}.items() if a is not None}
