"""FedGWC (Licciardi, Leo, Fani, Caputo and Ciccone, ICML 2025): one model per group of clients whose losses behave alike.

Every cluster trains like FedAvg does. On the side it watches the losses its clients report anyway: a client whose loss lies
near its cohort's mean gets a high reward, and the interaction matrix P keeps, for every pair sampled together, the mean
reward of the first. When P has settled, clients that are perceived alike are grouped, and each group goes on as a cluster
of its own. Every place where the paper and its authors' release differ, stay silent, or split what should stay whole, is a
setting here; docs/algorithms/fedgwc.md says what each one does and why the default is what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.aggregate import Aggregator, Server
from fedgwc.algorithms.fedgwc_state import Cluster, FedGWCState, Split, Window, copied, joined, window_of
from fedgwc.core import Clustering, Engine, Floats, Ids, Rng, Updates, check_rate, cohort_size, sample
from fedgwc.errors import InputError
from fedgwc.interactions import (
    LARGE,
    Features,
    Score,
    affinity,
    best_grouping,
    gaussian_rewards,
    gaussian_sides,
    groupings,
    loss_variances,
    update_interactions,
    update_weights,
)
from fedgwc.spectral import Assign


@dataclass(frozen=True)
class FedGWC:
    """Algorithm 2. The defaults are the preset `fedgwc`; see ALGORITHMS for `fedgwc-paper` and `fedgwc-release`."""

    rate: float = 0.1  # share of each cluster that trains in a round (at least 3 clients)
    aggregator: Aggregator = field(default_factory=Aggregator)
    beta: float = 0.5  # spread of the RBF kernel
    n_max: int = 5  # most groups a cluster may split into at once
    min_size: int = 5  # smallest group; 3 / rate keeps the total cohort constant, and then finds no smaller group
    # Rewards
    statistics: Literal["plain", "weighted"] = "plain"  # of the cohort's losses: plain, or by sample counts
    loss_samples: int = 0  # > 0: statistics of so many normal draws instead
    normalise: bool = False  # divide rewards by their sum over the cohort
    sides: bool = True  # tell losses above the mean from those below: a second matrix beside P
    # Interactions
    step: Literal["1/n", "constant", "cohort"] = "1/n"  # 1/visits of the pair; alpha; cohort size / cluster size
    alpha: float = 0.1  # of step "constant"
    start: Literal["zero", "1/K^2"] = "zero"  # entries of a fresh P
    # When to try a split
    when: Literal["windows", "visits", "mse"] = "windows"
    visits: int = 10  # "windows": rounds until the median pair was seen so often; "visits": then 2, 4, 8, ... times that
    contrast: float = 1.0  # of two windows: how much more clients must differ than a client's own batches
    agreement: float = 0.75  # adjusted Rand index between the groups that the two windows give
    settled: bool = True  # only while the contrast does not grow
    eps: float = 1e-5  # when the mse of P is below
    mse_over: Literal["matrix", "touched"] = "matrix"  # entries whose squared change is averaged
    mse_average: bool = False  # an exponential average of that over rounds
    patience: Literal["none", "sweep"] = "none"  # "sweep": below eps for cluster size / cohort size rounds in a row
    failure_resets_mse: bool = False
    # How to split
    features: Features = "rows"
    scaled: bool = False
    score: Score = "embedding"
    assign: Assign = "cluster_qr"
    groups_by_cohort: bool = False  # at most cluster size / cohort size groups
    strict: bool = False  # Davies-Bouldin below 1, not at most 1
    after_split: Literal["reset", "keep"] = "reset"  # the children's P
    # Sampling
    cohort: Literal["rate", "same"] = "rate"  # "same": every cluster samples as many as the whole federation would
    sampling: Literal["uniform", "rare-first"] = "uniform"  # rare-first: weights softmax(min count - count)

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if not (self.beta > 0 and self.eps > 0 and 0 < self.alpha <= 1):
            raise InputError(f"beta and eps must be positive and alpha in (0, 1], got {self.beta}, {self.eps} and {self.alpha}")
        if self.when == "windows" and (self.step != "1/n" or self.start != "zero" or self.after_split != "reset"):
            raise InputError(
                f"when=windows compares plain means over windows: it needs step 1/n, start zero and after_split reset, "
                f"got {self.step}, {self.start} and {self.after_split}"
            )
        if not (self.contrast >= 0 and self.agreement <= 1):
            raise InputError(f"contrast must be >= 0 and agreement at most 1, got {self.contrast} and {self.agreement}")
        if self.n_max < 2 or self.min_size < 1 or self.visits < 1 or self.loss_samples < 0:
            raise InputError(
                f"n_max must be >= 2, min_size and visits >= 1 and loss_samples >= 0, "
                f"got {self.n_max}, {self.min_size}, {self.visits} and {self.loss_samples}"
            )

    def init(self, model: Tensor, n_clients: int) -> FedGWCState:
        root = self._cluster(0, None, 0, np.arange(n_clients), Server(model), {})
        return FedGWCState((root,), (), np.zeros(n_clients, np.int64))

    def round(self, state: FedGWCState, engine: Engine, rng: Rng) -> FedGWCState:
        return self.advance(copied(state), engine, rng)

    def advance(self, state: FedGWCState, engine: Engine, rng: Rng) -> FedGWCState:
        """A round that writes into the matrices of the state it is given, for an owner who does not look back.

        It touches as many entries as the cohorts have pairs, whatever the number of clients.
        """
        cohorts = [self._sample(c, state, rng.generator(c.id)) for c in state.clusters]
        which = np.repeat(np.arange(len(cohorts)), [len(c) for c in cohorts])
        models = torch.stack([c.server.theta for c in state.clusters])
        updates = engine.train(np.concatenate(cohorts), models, which, rng.training)
        sampled = state.sampled
        sampled[updates.clients] += 1

        leaves: list[Cluster] = []
        splits = [replace(s, P=None, sides=None) for s in state.splits]
        n_born = state.n_born
        for cluster in state.clusters:
            cluster = self.learn(cluster, updates.of(cluster.members), rng)
            cluster, labels, scores = self.attempt(cluster, len(sampled), rng.seed)
            if labels is None:
                leaves.append(cluster)
                continue
            children = self._children(cluster, labels, scores, n_born, rng.round)
            n_born += len(children)
            leaves += children
            c = cluster
            seen = joined(c.before, window_of(c)) if c.before else window_of(c)
            splits.append(Split(c.id, c.parent, c.born, rng.round, c.members, labels, c.scores, seen.P, seen.sides))
        return FedGWCState(tuple(leaves), tuple(splits), sampled, n_born)

    def clustering(self, state: FedGWCState) -> Clustering:
        labels = np.empty(len(state.sampled), np.int64)
        for i, c in enumerate(state.clusters):
            labels[c.members] = i
        models = torch.stack([c.server.theta for c in state.clusters])
        return Clustering(models, labels, np.array([c.id for c in state.clusters], np.int64))

    # The steps of a round, in order

    def _sample(self, cluster: Cluster, state: FedGWCState, rng: np.random.Generator) -> Ids:
        size = self._cohort_size(len(cluster.members), len(state.sampled))
        if self.sampling == "uniform" or size == len(cluster.members):
            return sample(cluster.members, size, rng)
        seen = state.sampled[cluster.members]
        weights = np.exp((seen.min() - seen).astype(np.float64))
        weights = np.maximum(weights / weights.sum(), 1e-12)  # nobody is impossible
        return np.sort(rng.choice(cluster.members, size, replace=False, p=weights / weights.sum()))

    def _cohort_size(self, n_members: int, n_clients: int) -> int:
        return min(n_members, cohort_size(n_clients if self.cohort == "same" else n_members, self.rate))

    def learn(self, cluster: Cluster, updates: Updates, rng: Rng) -> Cluster:
        """The model, the weights and P after one cohort. Fewer than 3 answers say nothing about interactions."""
        cluster = replace(cluster, server=self.aggregator.step(cluster.server, updates))
        if updates.rewards is not None:
            updates = updates.rows(np.flatnonzero(updates.rewards.isfinite()))
        if len(updates) < 3:
            return cluster
        rewards = self._rewards(cluster, updates, rng)
        if updates.rewards is not None:
            return self.interact(cluster, updates.clients, rewards)
        losses, sizes = updates.losses.numpy(), updates.sizes.numpy() if self.statistics == "weighted" else None
        between, within = loss_variances(losses)
        cluster = replace(cluster, between=cluster.between + between, within=cluster.within + within)
        return self.interact(cluster, updates.clients, rewards, gaussian_sides(losses, sizes=sizes) if self.sides else None)

    def _rewards(self, cluster: Cluster, updates: Updates, rng: Rng) -> Floats:
        if updates.rewards is not None:  # each client has computed its own
            given: Floats = updates.rewards.double().numpy()
            return given / given.sum() if self.normalise else given
        sizes = updates.sizes.numpy() if self.statistics == "weighted" else None
        draws = rng.generator(cluster.id, 1) if self.loss_samples else None
        losses = updates.losses.numpy()
        return gaussian_rewards(losses, sizes=sizes, normalise=self.normalise, samples=self.loss_samples, rng=draws)

    def interact(self, cluster: Cluster, clients: Ids, rewards: Floats, sides: Floats | None = None) -> Cluster:
        """Eq. 2 and Eq. 3 for the members that were sampled; P, visits and sides are written in place."""
        at = np.searchsorted(cluster.members, clients)
        pairs = np.ix_(at, at)
        cluster.visits[pairs] += 1
        visits, old = cluster.visits[pairs], cluster.P[pairs]
        alpha = self._steps(visits, len(cluster.members))  # [n, n]
        P = update_interactions(cluster.P, at, rewards, alpha, out=cluster.P)
        if cluster.sides is not None and sides is not None:
            update_interactions(cluster.sides, at, sides, alpha, out=cluster.sides)
        change = (P[pairs] - old) ** 2
        new = float(change.mean() if self.mse_over == "touched" else change.sum() / P.size)
        if self.mse_average:
            new = float((1 - alpha.mean()) * cluster.mse + alpha.mean() * new)
        wanted = self._visits_wanted(cluster.attempts)
        return replace(
            cluster,
            gamma=update_weights(cluster.gamma, at, rewards, alpha.diagonal()),
            gamma2=update_weights(cluster.gamma2, at, rewards**2, alpha.diagonal()),
            mse=new,
            calm=cluster.calm + 1 if new < self.eps else 0,
            ripe=cluster.ripe + _off_diagonal_sum(visits == wanted),
        )

    def _steps(self, visits: Ids, n_members: int) -> Floats:
        if self.step == "1/n":
            return 1 / visits
        return np.full(visits.shape, self.alpha if self.step == "constant" else min(1.0, len(visits) / n_members))

    def _visits_wanted(self, attempts: int) -> int:
        return int(self.visits * (1 if self.when == "windows" else 2**attempts))

    def attempt(self, cluster: Cluster, n_clients: int, seed: int) -> tuple[Cluster, Ids | None, dict[int, float]]:
        """Split if it is time to try and Davies-Bouldin agrees: (cluster, labels or None, scores)."""
        K = len(cluster.members)
        cohort = self._cohort_size(K, n_clients)
        if not self._is_time(cluster, cohort):
            return cluster, None, {}
        n_max = min(self.n_max, K // cohort) if self.groups_by_cohort else self.n_max
        if n_max < 2:
            return cluster, None, {}
        if self.when == "windows":
            labels, scores = self._groups_of_windows(cluster, n_max, seed)
            if labels is None:
                return self._next_window(cluster), None, scores
            return replace(cluster, attempts=cluster.attempts + 1), labels, scores
        labels, scores = self._choice(self._groupings(window_of(cluster), n_max, seed))
        tried = replace(cluster, attempts=cluster.attempts + 1, mse=1.0 if self.failure_resets_mse else cluster.mse, calm=0)
        tried = replace(tried, ripe=_off_diagonal_sum(tried.visits >= self._visits_wanted(tried.attempts)))
        return tried, labels, scores

    def _groups_of_windows(self, cluster: Cluster, n_max: int, seed: int) -> tuple[Ids | None, dict[int, float]]:
        """Groups that this window and the one before it both see, if clients differ enough and no longer more and more."""
        before, now = cluster.before, window_of(cluster)
        if before is None:
            return None, {}
        both = joined(before, now)
        if both.contrast < self.contrast or (self.settled and now.contrast > before.contrast):
            return None, {}
        first, second, found = (self._groupings(w, n_max, seed) for w in (before, now, both))
        shared = first.keys() & second.keys()
        agreed = {n: g for n, g in found.items() if n in shared and _agree(first[n][0], second[n][0]) >= self.agreement}
        labels, _ = self._choice(agreed)
        return labels, {n: score for n, (_, score) in found.items()}

    def affinity(self, P: Floats, sides: Floats | None = None) -> Floats:
        """W [K, K] as this algorithm's settings make it."""
        return affinity(P, self.beta, features=self.features, scaled=self.scaled, sides=sides)

    def _groupings(self, seen: Window, n_max: int, seed: int) -> dict[int, tuple[Ids, float]]:
        how = {"features": self.features, "score": self.score, "assign": self.assign, "scaled": self.scaled}
        return groupings(seen.P, self.beta, n_max, sides=seen.sides, seed=seed, **how)  # type: ignore[arg-type]

    def _choice(self, found: dict[int, tuple[Ids, float]]) -> tuple[Ids | None, dict[int, float]]:
        """The best of the groupings that may go ahead."""
        below = np.nextafter(1.0, 0.0) if self.strict else 1.0
        return best_grouping(found, below, self.min_size), {n: score for n, (_, score) in found.items()}

    def _next_window(self, cluster: Cluster) -> Cluster:
        """Late rounds tell more than early ones: a window that led to nothing is kept for one more, and then forgotten."""
        fresh = self._cluster(cluster.id, cluster.parent, cluster.born, cluster.members, cluster.server, cluster.scores)
        tried = cluster.attempts + (cluster.before is not None)
        return replace(fresh, before=window_of(cluster), attempts=tried, mse=cluster.mse)

    def _is_time(self, cluster: Cluster, cohort: int) -> bool:
        K = len(cluster.members)
        if max(2 * self.min_size, 3) > K:
            return False  # it could not be split, whatever P says
        if self.when in ("windows", "visits"):
            return 2 * cluster.ripe >= K * (K - 1)  # half of the pairs: the median was seen often enough
        return cluster.calm >= (1 if self.patience == "none" else max(1, K // cohort))

    def _children(self, cluster: Cluster, labels: Ids, scores: dict[int, float], first: int, number: int) -> list[Cluster]:
        children = []
        for y in range(int(labels.max()) + 1):
            at = np.flatnonzero(labels == y)
            child = self._cluster(first + y, cluster.id, number, cluster.members[at], cluster.server, scores)
            if self.after_split == "keep":
                pairs = np.ix_(at, at)
                visits = cluster.visits[pairs]
                ripe = _off_diagonal_sum(visits >= self._visits_wanted(0))
                kept: dict[str, Any] = {"gamma": cluster.gamma[at], "gamma2": cluster.gamma2[at]}
                kept |= _if_any(sides=None if cluster.sides is None else cluster.sides[pairs])
                child = replace(child, P=cluster.P[pairs], visits=visits, ripe=ripe, **kept)
            children.append(child)
        return children

    def _cluster(self, id: int, parent: int | None, born: int, members: Ids, server: Server, scores: dict[int, float]) -> Cluster:
        K = len(members)
        real, whole = (np.float64, np.int64) if K <= LARGE else (np.float32, np.int32)
        P = np.full((K, K), 1 / K**2 if self.start == "1/K^2" else 0.0, real)
        sides = np.zeros((K, K), real) if self.sides else None
        visits = np.zeros((K, K), whole)
        return Cluster(id, parent, born, members, server, P, visits, np.zeros(K), np.zeros(K), scores=scores, sides=sides)

    # What a run records

    def numbers(self, state: FedGWCState) -> dict[str, float]:
        numbers = {"mse": float(np.mean([c.mse for c in state.clusters])), "attempts": sum(c.attempts for c in state.clusters)}
        seen = [window_of(c).contrast for c in state.clusters if c.within > 0]
        return numbers | ({"contrast": float(np.mean(seen))} if seen else {})

    def events(self, state: FedGWCState) -> dict[str, dict[str, NDArray[Any]]]:
        """Splits of the last round, by the name of the cluster that was split."""
        return {
            str(s.id): {"P": s.P, "members": s.members, "labels": s.labels, **_if_any(sides=s.sides)}
            for s in state.splits
            if s.P is not None
        }

    def matrices(self, state: FedGWCState) -> dict[str, dict[str, NDArray[Any]]]:
        """Every leaf as it stands."""
        return {
            f"end-{c.id}": {
                "P": c.P,
                "members": c.members,
                "visits": c.visits,
                "gamma": c.gamma,
                "gamma2": c.gamma2,
                **_if_any(sides=c.sides),
            }
            for c in state.clusters
        }

    def tree(self, state: FedGWCState) -> list[dict[str, Any]]:
        """All clusters that ever were: id, parent, born, ended (None: a leaf), members, and the scores that made each."""
        ended = [(s.id, s.parent, s.born, s.ended, s.members, s.scores) for s in state.splits]
        alive = [(c.id, c.parent, c.born, None, c.members, c.scores) for c in state.clusters]
        names = ("id", "parent", "born", "ended", "members", "scores")
        rows: list[dict[str, Any]] = [dict(zip(names, node, strict=True)) for node in (*ended, *alive)]
        return sorted(({**r, "members": r["members"].tolist()} for r in rows), key=lambda r: int(r["id"]))


def _off_diagonal_sum(flags: NDArray[np.bool_]) -> int:
    return int(flags.sum() - flags.diagonal().sum())


def _if_any(**arrays: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    return {name: a for name, a in arrays.items() if a is not None}


def _agree(a: Ids, b: Ids) -> float:
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(a, b))
