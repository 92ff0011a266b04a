"""The package's own rule: clients whose losses behave alike share a model.

Groups are found window by window.

Every cluster trains like FedAvg does, and watches the losses that its clients report. A window of rounds ends when half of the
pairs of clients have met. Then the clients' positions, which follow from all windows so far, are cut in two where groups
describe them best. The cut divides the cluster if two windows agree, if groups describe clients clearly better than one does, and
if clients differ or the cut has foretold who helps whom. docs/algorithms/auto.md says why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.auto.beginnings import children, fresh, next_window, with_cut
from fedgwc.algorithms.auto.learning import learnt
from fedgwc.algorithms.auto.membership import with_members
from fedgwc.algorithms.auto.proposals import proposed
from fedgwc.algorithms.auto.second_look import is_tried, resolve_trials, who_waits
from fedgwc.algorithms.auto.settings import Settings
from fedgwc.algorithms.auto.state import (
    AutoState,
    Cluster,
    Split,
    copied,
    labels_of,
    recorded_leaves,
    recorded_splits,
    recorded_tree,
)
from fedgwc.algorithms.auto.verdicts import NO_ONE_WAITS, NOBODY, Attempt, in_words, judged
from fedgwc.algorithms.auto.windows import with_window
from fedgwc.algorithms.groups import joined
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import Engine, LearnsFrom, Observation
from fedgwc.core.sampling import sample
from fedgwc.core.settings import plain
from fedgwc.core.tensors import stack_rows
from fedgwc.core.types import Clustering, Floats, Ids, Rng
from fedgwc.core.work import Work

# Half of the clients train this often before a window ends: in a small cluster all pairs meet before the model has adapted.
SETTLED = 10


@dataclass(frozen=True)
class Auto(Settings):
    """Finds groups by windows of rounds, and divides on trial."""

    @property
    def learns_from(self) -> LearnsFrom:
        return "rewards"

    def init(self, model: Tensor, n_clients: int, layout: Layout) -> AutoState:
        root = fresh(self, 0, None, 0, np.arange(n_clients), Server(model), {}, n_clients <= self.pairs_up_to)
        return AutoState((root,), (), np.zeros(n_clients, np.int64))

    def warnings(self, n_clients: int) -> list[str]:
        if few := self.too_few(n_clients):
            return [few]
        if n_clients <= self.pairs_up_to:
            return []
        most = f"{n_clients:,} clients are more than algorithm.pairs_up_to={self.pairs_up_to}"
        return [f"{most}: what is known is kept by client, not by pair of clients"]

    def too_few(self, n_clients: int) -> str:
        """Say that so few clients are never divided; empty if they may be."""
        if self.is_divisible(n_clients):
            return ""
        return f"{n_clients} clients are never divided, it takes at least {self.fewest} (with algorithm.min_size={self.min_size})"

    def round(self, state: AutoState, engine: Engine, rng: Rng) -> AutoState:
        return self.advance(copied(state), engine, rng)

    def advance(self, state: AutoState, engine: Engine, rng: Rng) -> AutoState:
        """Run a round that overwrites the given state's matrices.

        For a caller who needs that state no more.

        It touches only the entries of the cohorts' pairs, whatever the number of clients.
        """
        cohorts = [self._sample(c, rng) for c in state.clusters]
        asked, which = np.concatenate(cohorts), np.repeat(np.arange(len(cohorts)), [len(c) for c in cohorts])
        models = stack_rows([c.server.theta for c in state.clusters])
        updates = engine.train(asked, models, which, rng.training, Work(round=rng.round))
        sampled = state.sampled
        sampled[updates.clients] += 1
        # In most rounds everybody answers, in the order asked.
        own = which if np.array_equal(updates.clients, asked) else labels_of(state)[updates.clients]  # [n]

        leaves: list[Cluster] = []
        splits = [s if s.P is None else replace(s, P=None, distances=None, paths=None, echo=None) for s in state.splits]
        n_born = state.n_born
        clusters = learnt(self, state.clusters, updates, own)
        clusters, splits, verdicts = resolve_trials(self, clusters, splits, engine, rng.round)
        for cluster in clusters:
            tried = self.attempt(cluster)
            verdicts += [] if tried.verdict is None else [tried.verdict]
            c, labels = tried.cluster, tried.labels
            if labels is None:
                leaves.append(c)
                continue
            born = children(self, c, labels, tried.scores, n_born, rng.round, tried.waiting)
            n_born += len(born)
            leaves += born
            splits.append(Split.of(c, labels, ended=rng.round))
        return AutoState(tuple(leaves), tuple(splits), sampled, n_born, tuple(verdicts))

    def held_back(self, state: AutoState) -> Ids:
        return np.concatenate([NOBODY, *(c.waiting for c in state.clusters if c.waiting is not None)])

    def clustering(self, state: AutoState) -> Clustering:
        models = stack_rows([c.server.theta for c in state.clusters])
        return Clustering(models, labels_of(state), self.cluster_numbers(state))

    def n_clusters(self, state: AutoState) -> int:
        return len(state.clusters)

    def cluster_numbers(self, state: AutoState) -> Ids:
        return np.array([c.id for c in state.clusters], np.int64)

    def _sample(self, cluster: Cluster, rng: Rng) -> Ids:
        members = cluster.members if cluster.waiting is None else np.setdiff1d(cluster.members, cluster.waiting)
        size = self.cohort_of(len(members))
        return members if size == len(members) else sample(members, size, rng.generator(cluster.id))

    def attempt(self, cluster: Cluster) -> Attempt:
        """Divide the cluster if a window has ended and there is enough evidence."""
        return self._end_of_window(cluster) if self._is_time(cluster) else Attempt(cluster)

    def _end_of_window(self, cluster: Cluster) -> Attempt:
        """Divide if clients drift, or into groups that the window before has shown too."""
        unplaced = cluster.distances is None and cluster.paths is None  # late members have no earlier position to keep
        if cluster.late is not None and (cluster.late.all() or unplaced):
            return Attempt(next_window(self, cluster))  # nobody can be compared
        told = cluster.sides is not None and cluster.spreads is not None and cluster.sides.any()  # False if losses are private
        views = [v for v in (cluster.sides, cluster.spreads) if told and v is not None] or [cluster.P.copy()]
        known = with_window(cluster, views)
        cut, by_echoes = proposed(self, known)
        # Clients with private losses cannot say how well either model serves them.
        waiting = who_waits(cut) if cut is not None and self.second_look and told else NO_ONE_WAITS
        wanted = self.gain + self.doubt * (cluster.undone + (not is_tried(cut, waiting)))
        verdict = judged(cluster, cut, self.agreement, wanted, by_echoes)
        tried = with_cut(replace(known, attempts=cluster.attempts + (cluster.cut is not None)), cut)
        if cut is not None and verdict.divides:
            waiting = waiting if verdict.reason == "groups" else NO_ONE_WAITS  # after drift no side is the right one
            return Attempt(tried, cut.labels, {2: cut.score}, verdict, waiting)
        if verdict.agreement is None or verdict.agreement < self.agreement:
            tried = replace(tried, told=0.0, told2=0.0)  # a new cut has foretold nothing yet
        return Attempt(next_window(self, tried), verdict=verdict)

    def affinity(self, P: Floats, distances: Floats | None = None) -> Floats:
        """Turn distances into affinities W [K, K].

        Before the first window has ended there are none, and W is P.
        """
        return P if distances is None else np.asarray(np.exp(-distances / max(float(distances.mean()), 1e-12)), np.float64)

    def _is_time(self, cluster: Cluster) -> bool:
        K = len(cluster.members)
        if not self.is_divisible(K) or cluster.waiting is not None:
            return False
        often = 2 * cluster.ripe >= K * (K - 1 if cluster.by_pairs else 1)  # at least half of the pairs or clients
        return often and (not cluster.by_pairs or _settled(cluster))

    # Clients that join

    def room(self, state: AutoState) -> int | None:
        """Return how many clients may join.

        Pairs grow with the square of the clients, so they are kept up to some number only.
        """
        if any(c.by_pairs for c in state.clusters):
            return max(0, self.pairs_up_to - len(state.sampled))
        return None

    def grow(self, state: AutoState, rows: Ids) -> AutoState:
        first = len(state.sampled)
        clusters = [with_members(c, joined(c.members, rows, i, first)) for i, c in enumerate(state.clusters)]
        return replace(state, clusters=tuple(clusters), sampled=np.concatenate([state.sampled, np.zeros(len(rows), np.int64)]))

    # What a run records

    def observe(self, state: AutoState) -> Observation:
        """Return the last round's verdicts with their reasons in words."""
        numbers = {"mse": float(np.mean([c.mse for c in state.clusters])), "attempts": sum(c.attempts for c in state.clusters)}
        for name, seen in (
            ("contrast", [c.contrast for c in state.clusters if c.within > 0]),
            ("drift", [c.drift for c in state.clusters if c.second > 0]),
        ):
            if seen:
                numbers[name] = float(np.mean(seen))
        asked = self.agreement, self.drift, self.contrast
        verdicts = [{**plain(v), "divides": v.divides, "why": in_words(v, *asked)} for v in state.verdicts]
        return Observation(numbers, recorded_splits(state), verdicts)

    def matrices(self, state: AutoState) -> dict[str, dict[str, NDArray[Any]]]:
        return recorded_leaves(state)

    def tree(self, state: AutoState) -> list[dict[str, Any]]:
        return recorded_tree(state)


def _settled(c: Cluster) -> bool:
    """Tell whether half of the members trained often enough for a window to end."""
    return bool(2 * np.count_nonzero(c.visits.diagonal() >= SETTLED) >= len(c.members))
