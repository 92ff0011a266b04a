"""The state of the package's own rule: clusters, what is known of their members in all windows, and splits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.aggregate import Server
from fedgwc.core.types import Floats, Ids

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
    """K clients that share a model, and what is known about them.

    A large federation is known by client instead of by pair: arrays that are [K, K] below are then [K], their diagonal.
    """

    id: int
    parent: int | None
    born: int  # the round that made it
    members: Ids  # [K]
    server: Server
    P: Floats  # [K, K] interaction matrix
    visits: Ids  # [K, K] how often each pair was sampled together; the diagonal counts clients
    gamma: Floats  # [K] Gaussian weights
    gamma2: Floats  # [K] the same running mean of squared rewards, for the interval of gamma
    mse: float = 1.0  # mean squared change of P in the last round
    attempts: int = 0  # attempts to split it
    ripe: int = 0  # pairs (or clients) seen as often as the next attempt requires
    scores: dict[int, float] = field(default_factory=dict)  # Davies-Bouldin by number of groups, of the split that made it
    # P, visits and the next nine fields cover the present window only.
    sides: Floats | None = None  # [K, K] the same running means as P, of `gaussian_sides`
    spreads: Floats | None = None  # [K, K] likewise, of `gaussian_spreads`
    between: float = 0.0  # variance of losses between clients, summed over rounds
    within: float = 0.0  # variance between the steps of one client, likewise
    first: float = 0.0  # mean loss of the first local step, summed over rounds
    second: float = 0.0  # mean loss of the second local step, likewise
    heard: int = 0  # rounds with losses of at least three clients
    apart: int = 0  # of these, rounds with the required contrast
    adrift: int = 0  # of these, rounds with the required drift
    differed: bool = False  # whether an earlier window had the required contrast in half of its rounds
    told: float = 0.0  # score of the last cut as a predictor of who lowers whose loss, summed over rounds
    told2: float = 0.0  # squares of that score, summed over rounds
    distances: Floats | None = None  # [K, K] squared distances between perception vectors, summed over past windows
    echo: Floats | None = None  # [K, K] how much lower than usual k's first loss was after j had trained, summed over rounds
    level: Floats | None = None  # [K] logarithm of each client's usual first loss; NaN if not known yet
    before: Ids | None = None  # indices among the members of the last round's trainers; None if unknown or not heard
    cut: Ids | None = None  # [K] the sides (0 or 1) of the last proposed cut
    undone: int = 0  # divisions of this cluster that were tried and undone
    paths: Floats | None = None  # [K, m] by client, in place of distances: its mean in every past window and view
    waiting: Ids | None = None  # clients who sit out while the division that made this cluster is on trial
    witnesses: Ids | None = None  # those of them who are typical of this side
    late: Ids | None = None  # [K] windows, with this one, in which a member catches up and is not compared; 0: it is not late

    @property
    def by_pairs(self) -> bool:
        return self.visits.ndim == 2

    @property
    def contrast(self) -> float:
        """Variance of losses between clients over that between one client's batches, minus 1."""
        return self.between / self.within - 1 if self.within > 0 else np.inf

    @property
    def drifts(self) -> bool:
        """Tell whether nobody can use the shared model in half of the rounds.

        Then any division into similar clients helps, groups or not.
        """
        return adrift_in_half(self.adrift, self.heard)

    @property
    def differs(self) -> bool:
        """Tell whether clients' losses differ, now or earlier.

        Not just those of their batches. True before the first round.
        """
        return self.differed or 2 * self.apart >= self.heard

    @property
    def has_differed(self) -> bool:
        """Tell whether any full window had enough contrast.

        Full: without late members; enough: the required contrast in half of its rounds.
        """
        return self.differed or (not self.some_are_late and 0 < self.heard <= 2 * self.apart)

    @property
    def some_are_late(self) -> bool:
        return self.late is not None and bool(self.late.any())

    @property
    def foretold(self) -> float:
        """Score how well the last cut has predicted who helps whom.

        Since it was first made, in deviations above chance.
        """
        return self.told / self.told2**0.5 if self.told2 > 0 else 0.0

    @property
    def drift(self) -> float:
        """Loss of the first local step over that of the second, minus 1."""
        return self.first / self.second - 1 if self.second > 0 else np.inf


@dataclass(frozen=True)
class Split:
    """A cluster that was divided: an inner node of the tree."""

    id: int
    parent: int | None
    born: int
    ended: int  # the round that divided it
    members: Ids  # [K]
    labels: Ids  # [K] the child that each member went to
    scores: dict[int, float]  # of the split that made this cluster
    undone: int = 0  # earlier divisions of it that were undone
    differed: bool = False  # `Cluster.has_differed` when it was divided
    P: Floats | None = None  # [K, K] at the split; this and the next three are dropped after the round in which they are recorded
    distances: Floats | None = None  # [K, K]
    paths: Floats | None = None  # [K, m]
    echo: Floats | None = None  # [K, K]

    @classmethod
    def of(cls, cluster: Cluster, labels: Ids, ended: int) -> Split:
        c = cluster
        return cls(
            id=c.id,
            parent=c.parent,
            born=c.born,
            ended=ended,
            members=c.members,
            labels=labels,
            scores=c.scores,
            undone=c.undone,
            differed=c.has_differed,
            P=c.P,
            distances=c.distances,
            paths=c.paths,
            echo=c.echo,
        )


@dataclass(frozen=True)
class Verdict:
    """Evidence for and against dividing a cluster, and what decided.

    At the end of a window. None: unknown, or not asked for.

    Or the end of a trial: some clients "moved" to the other side, or the division was "confirmed" as it is, or the two sides
    "rejoined" because it was undone.
    """

    cluster: int
    clients: int
    reason: Reason  # what decided
    sizes: tuple[int, ...] = ()  # of the two sides; if clients moved, of those who stayed and those who moved
    score: float | None = None  # Davies-Bouldin of the cut
    gain: float | None = None  # how much better than one group several describe the clients
    wanted: float | None = None  # the gain that was required; None also if any gain would do
    agreement: float | None = None  # adjusted Rand index with the cut of the window before
    rounds: int = 0  # rounds of the window in which drift and contrast are known
    drift: float | None = None  # over all these rounds
    adrift: int = 0  # rounds with the required drift
    contrast: float | None = None  # over all these rounds
    apart: int = 0  # rounds with the required contrast
    differed: bool = False  # whether an earlier window had it in half of its rounds
    by_echoes: bool = False  # whether only echoes were looked at
    foretold: float | None = None  # `Cluster.foretold`
    to: int | None = None  # the other side: the cluster to which some moved
    clear: float | None = None  # how differently the two models serve the two sides, in deviations

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
class AutoState:
    clusters: tuple[Cluster, ...]  # the leaves of the tree
    splits: tuple[Split, ...]  # its inner nodes
    sampled: Ids  # [N] rounds each client took part in
    n_born: int = 1  # clusters made so far, so the next one's id
    verdicts: tuple[Verdict, ...] = ()  # of the windows and trials that ended with the last round


def adrift_in_half(adrift: int, rounds: int) -> bool:
    """Tell whether clients drifted in at least half of the rounds."""
    return 0 < rounds <= 2 * adrift


def changed(c: Cluster, new: dict[str, Any]) -> Cluster:
    """Like `replace`, but faster, as it does not set unchanged fields one by one: every cluster changes in every round."""
    cluster = object.__new__(Cluster)
    vars(cluster).update(vars(c) | new)
    return cluster


def labels_of(state: AutoState) -> Ids:
    """Return the index in `clusters` of each client's cluster [N]."""
    members = [c.members for c in state.clusters]
    labels = np.empty(len(state.sampled), np.int64)
    labels[np.concatenate(members)] = np.repeat(np.arange(len(members)), [len(m) for m in members])
    return labels


def copied(state: AutoState) -> AutoState:
    """The same state with copies of all arrays that rounds write to."""
    clusters = [replace(c, **{k: a.copy() for k, a in written(c).items()}) for c in state.clusters]
    return replace(state, clusters=tuple(clusters), sampled=state.sampled.copy())


def written(c: Cluster) -> dict[str, Any]:
    """Return the arrays that rounds write to, by name.

    Means and counts of the present window, and distances and echoes so far.
    """
    named = {"P": c.P, "visits": c.visits, "sides": c.sides, "spreads": c.spreads, "distances": c.distances, "echo": c.echo}
    return {name: a for name, a in named.items() if a is not None}


# What a run records of it


def recorded_splits(state: AutoState) -> dict[str, dict[str, NDArray[Any]]]:
    """The last round's splits, by the id of the cluster that was split."""
    news = [s for s in state.splits if s.P is not None]
    return {str(s.id): {"members": s.members, "labels": s.labels, **_evidence(s)} for s in news}


def recorded_leaves(state: AutoState) -> dict[str, dict[str, NDArray[Any]]]:
    """Every leaf as it is now, by `end-<id>`."""
    return {
        f"end-{c.id}": {"members": c.members, "visits": c.visits, "gamma": c.gamma, "gamma2": c.gamma2, **_evidence(c)}
        for c in state.clusters
    }


def recorded_tree(state: AutoState) -> list[dict[str, Any]]:
    """Return all inner nodes and leaves as arrays.

    Id, parent, born, ended (None for a leaf), members, and scores of the split that made each.
    """
    ended = [(s.id, s.parent, s.born, s.ended, s.members, s.scores) for s in state.splits]
    alive = [(c.id, c.parent, c.born, None, c.members, c.scores) for c in state.clusters]
    names = ("id", "parent", "born", "ended", "members", "scores")
    rows: list[dict[str, Any]] = [dict(zip(names, node, strict=True)) for node in (*ended, *alive)]
    return sorted(({**r, "members": r["members"].tolist()} for r in rows), key=lambda r: int(r["id"]))


def _evidence(c: Cluster | Split) -> dict[str, NDArray[Any]]:
    P = c.P if c.P is not None and c.P.ndim == 2 else None  # by client P equals gamma, which is recorded already
    return {name: a for name, a in {"P": P, "distances": c.distances, "paths": c.paths, "echo": c.echo}.items() if a is not None}
