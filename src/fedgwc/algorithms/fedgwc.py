"""FedGWC (Licciardi, Leo, Fani, Caputo and Ciccone, ICML 2025): one model per group of clients whose losses behave alike.

Every cluster trains like FedAvg does. On the side it watches the losses its clients report anyway: a client whose loss lies
near its cohort's mean gets a high reward, and the interaction matrix P keeps, for every pair sampled together, the mean
reward of the first. When P has settled, clients that are perceived alike are grouped, and each group goes on as a cluster
of its own. Every place where the paper and its authors' release differ, stay silent, or split what should stay whole, is a
setting here; docs/algorithms/fedgwc.md says what each one does and why the default is what it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedgwc import perception
from fedgwc.aggregate import Aggregator, Server
from fedgwc.algorithms.fedgwc_state import (
    Cluster,
    FedGWCState,
    Split,
    Verdict,
    changed,
    copied,
    labels_of,
    recorded_leaves,
    recorded_splits,
    recorded_tree,
)
from fedgwc.algorithms.stacks import Told, cohorts_alike, count, entries, move
from fedgwc.algorithms.verdicts import Attempt, in_words, judged
from fedgwc.algorithms.windows import among, cloud, with_window
from fedgwc.core import Clustering, Engine, Floats, Ids, Rng, Updates, check_rate, cohort_size, sample, stacked
from fedgwc.cuts import Cut, best_by_chance, best_cut
from fedgwc.errors import InputError
from fedgwc.interactions import Features, Score, affinity, check_once, checked_rewards, fedgw_cluster
from fedgwc.readings import Readings
from fedgwc.settings import plain
from fedgwc.spectral import Assign

MOST_VISITS = np.iinfo(np.int16).max  # that are counted within a window of many clients
MEETING = 10  # rounds of a client until it has met a given other one, when a tenth of them train


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
    sides: bool = True  # two matrices beside P: on which side of the mean losses lie, and how restless they are
    # Interactions
    step: Literal["1/n", "constant", "cohort"] = "1/n"  # 1/visits of the pair; alpha; cohort size / cluster size
    alpha: float = 0.1  # of step "constant"
    start: Literal["zero", "1/K^2"] = "zero"  # entries of a fresh P
    # When to try a split
    when: Literal["windows", "visits", "mse"] = "windows"
    visits: int = 3  # rounds until the median pair was seen so often; "visits": then 2, 4, 8, ... times that
    agreement: float = 0.9  # adjusted Rand index between the cuts at the ends of two windows
    directions: int = 3  # leading axes of the clients' cloud in whose span it may be cut
    contrast: float = 2.0  # how much more clients must differ than a client's own batches
    draws: int = 99  # clouds without groups, all of which must divide less clearly
    margin: float = 0.5  # by how much; less is enough once groups no longer grow clearer
    drift: float = 1.0  # enough without these: how much higher losses are at the first local step than at the second
    pairs_up_to: int = 4096  # clients; of more, "windows" knows clients in place of pairs, the median one seen 10 times as often
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
        if not (self.contrast >= -1 and self.drift > 0 and self.agreement <= 1 and self.directions >= 1 and self.draws >= 0):
            raise InputError(
                f"contrast must be >= -1, drift positive, agreement at most 1, directions >= 1 and draws >= 0, "
                f"got {self.contrast}, {self.drift}, {self.agreement}, {self.directions} and {self.draws}"
            )
        if not 0 <= self.margin <= 1:
            raise InputError(f"margin must be in [0, 1], got {self.margin}; 0 divides as soon as groups are clearer than chance")
        if self.n_max < 2 or self.min_size < 1 or not 1 <= self.visits < MOST_VISITS or self.loss_samples < 0:
            raise InputError(
                f"n_max must be >= 2, min_size >= 1, visits in 1..{MOST_VISITS - 1} and loss_samples >= 0, "
                f"got {self.n_max}, {self.min_size}, {self.visits} and {self.loss_samples}"
            )

    def init(self, model: Tensor, n_clients: int) -> FedGWCState:
        self.notes(n_clients)
        root = self._cluster(0, None, 0, np.arange(n_clients), Server(model), {}, n_clients <= self.pairs_up_to)
        return FedGWCState((root,), (), np.zeros(n_clients, np.int64))

    def notes(self, n_clients: int) -> list[str]:
        """What is different with so many clients; an InputError if they are too many."""
        if n_clients <= self.pairs_up_to:
            return []
        most = f"{n_clients:,} clients are more than algorithm.pairs_up_to={self.pairs_up_to}"
        if self.when == "windows":
            return [f"{most}: what is known is kept by client, not by pair of clients"]
        raise InputError(
            f"{most}, and when={self.when} needs to know every pair: {12 * n_clients**2 / 2**30:.1f} GiB with the affinity; "
            f"set algorithm.pairs_up_to={n_clients} if there is so much memory, or when=windows as the preset fedgwc has it"
        )

    def round(self, state: FedGWCState, engine: Engine, rng: Rng) -> FedGWCState:
        return self.advance(copied(state), engine, rng)

    def advance(self, state: FedGWCState, engine: Engine, rng: Rng) -> FedGWCState:
        """A round that writes into the matrices of the state it is given, for an owner who does not look back.

        It touches as many entries as the cohorts have pairs, whatever the number of clients.
        """
        cohorts = [self._sample(c, state, rng) for c in state.clusters]
        asked, which = np.concatenate(cohorts), np.repeat(np.arange(len(cohorts)), [len(c) for c in cohorts])
        models = stacked([c.server.theta for c in state.clusters])
        updates = engine.train(asked, models, which, rng.training)
        sampled = state.sampled
        sampled[updates.clients] += 1
        # Nearly always all of them answer.
        own = which if np.array_equal(updates.clients, asked) else labels_of(state)[updates.clients]  # [n]

        leaves: list[Cluster] = []
        verdicts: list[Verdict] = []
        splits = [s if s.P is None else replace(s, P=None, distances=None, paths=None) for s in state.splits]
        n_born = state.n_born
        for cluster in self.learn(state.clusters, updates, own, rng):
            tried = self.attempt(cluster, len(sampled), rng.seed)
            verdicts += [] if tried.verdict is None else [tried.verdict]
            c, labels = tried.cluster, tried.labels
            if labels is None:
                leaves.append(c)
                continue
            children = self._children(c, labels, tried.scores, n_born, rng.round)
            n_born += len(children)
            leaves += children
            splits.append(Split(c.id, c.parent, c.born, rng.round, c.members, labels, c.scores, c.P, c.distances, c.paths))
        return FedGWCState(tuple(leaves), tuple(splits), sampled, n_born, tuple(verdicts))

    def clustering(self, state: FedGWCState) -> Clustering:
        models = stacked([c.server.theta for c in state.clusters])
        return Clustering(models, labels_of(state), np.array([c.id for c in state.clusters], np.int64))

    # The steps of a round, in order

    def _sample(self, cluster: Cluster, state: FedGWCState, rng: Rng) -> Ids:
        members, size = cluster.members, self._cohort_size(len(cluster.members), len(state.sampled))
        if size == len(members):
            return members
        draws = rng.generator(cluster.id)
        if self.sampling == "uniform":
            return sample(members, size, draws)
        seen = state.sampled[members]
        weights = np.exp((seen.min() - seen).astype(np.float64))
        weights = np.maximum(weights / weights.sum(), 1e-12)  # nobody is impossible
        return np.sort(draws.choice(members, size, replace=False, p=weights / weights.sum()))

    def _cohort_size(self, n_members: int, n_clients: int) -> int:
        return min(n_members, cohort_size(n_clients if self.cohort == "same" else n_members, self.rate))

    def learn(self, clusters: Sequence[Cluster], updates: Updates, own: Ids, rng: Rng) -> list[Cluster]:
        """The models, the weights and P after a round; `own` [n] is the place of each answer's cluster.

        Fewer than 3 answers say nothing about interactions.
        """
        servers = self.aggregator.steps([c.server for c in clusters], updates, own)
        learnt: list[dict[str, Any]] = [{"server": server} for server in servers]
        check_once(updates.clients)
        if updates.rewards is not None:
            came = np.flatnonzero(updates.rewards.isfinite())
            updates, own = updates.rows(came), own[came]
        # Draws are a cluster's own, and so is the type of its matrices.
        kinds = [c.id if self.loss_samples else c.P.dtype for c in clusters]
        for places, rows in cohorts_alike(own, kinds, least=3):
            some = [clusters[i] for i in places]
            draws = rng.generator(some[0].id, 1) if self.loss_samples else None
            told = self._told(updates, rows, some[0].sides is not None, draws)
            met = self._met(some, updates.clients[rows], told)
            for i, whole, changes in zip(places, told.whole.tolist(), met, strict=True):
                learnt[i] |= self._heard(clusters[i], whole) | changes
        return [changed(c, new) for c, new in zip(clusters, learnt, strict=True)]

    def _told(self, updates: Updates, rows: Ids, beside: bool, draws: np.random.Generator | None) -> Told:
        """What equally large cohorts say, whose answers are `rows` [C, n]."""
        if updates.rewards is not None:  # each client has computed its own
            given = checked_rewards(updates.rewards.double().numpy()[rows])
            known = updates.readings  # of one cohort they differ only where a replay mixes cohorts
            whole = np.full((len(rows), 4), np.nan) if known is None else known.double().numpy()[rows].mean(1)
            return Told(whole, (given / given.sum(1, keepdims=True) if self.normalise else given)[None])
        seen = Readings(updates.losses.numpy()[rows], updates.sizes.numpy()[rows] if self.statistics == "weighted" else None)
        whole = np.array([*seen.variances(), *seen.first_losses()]).T
        each = [seen.rewards(self.normalise, self.loss_samples, draws)]
        each += [seen.sides(), seen.spreads()] if beside else []
        return Told(whole, np.array(each))

    def _heard(self, c: Cluster, whole: Sequence[float]) -> dict[str, Any]:
        """What a cohort's losses as a whole change. Rounds are counted, because in half of them there is no single odd client."""
        if not math.isfinite(sum(whole)):
            return {}
        between, within, first, second = whole
        return {
            "between": c.between + between,
            "within": c.within + within,
            "first": c.first + first,
            "second": c.second + second,
            "heard": c.heard + 1,
            "apart": c.apart + (between >= (1 + self.contrast) * within),
            "adrift": c.adrift + (first >= (1 + self.drift) * second and first > 0),
        }

    def _met(self, clusters: Sequence[Cluster], clients: Ids, told: Told) -> list[dict[str, Any]]:
        """What Eq. 2 and Eq. 3 change for the members that were sampled [C, n]; the matrices are written in place."""
        rewards = told.each[0]
        by_pairs, sizes = clusters[0].by_pairs, np.array([len(c.members) for c in clusters])
        at = np.array([c.members.searchsorted(cohort) for c, cohort in zip(clusters, clients, strict=True)])  # [C, n]
        pairs, column = (entries(at, sizes), np.s_[..., None]) if by_pairs else (at, np.s_[...])
        visits = count([c.visits for c in clusters], pairs)  # [C, n, n], or by client [C, n]
        alpha = self._steps(visits, sizes)
        views = [[getattr(c, view) for c in clusters] for view in ("P", "sides", "spreads")[: len(told.each)]]
        (old, *_), (new, *_) = move(views, pairs, told.each[column], alpha)
        gammas, gammas2 = [c.gamma.copy() for c in clusters], [c.gamma2.copy() for c in clusters]
        by_client = alpha.diagonal(0, 1, 2) if by_pairs else alpha  # [C, n]
        move([gammas, gammas2], at, np.array([rewards, rewards**2]), by_client)
        change = ((new - old) ** 2).reshape(len(clusters), -1)
        mse = change.mean(1) if self.mse_over == "touched" else change.sum(1) / [c.P.size for c in clusters]
        if self.mse_average:
            step = alpha.reshape(len(clusters), -1).mean(1)
            mse = (1 - step) * [c.mse for c in clusters] + step * mse
        met = []
        for c, n, gamma, gamma2, m in zip(clusters, visits, gammas, gammas2, mse.tolist(), strict=True):
            ripe = c.ripe + _how_many(n == self.visits_wanted(c.attempts, by_pairs))
            met.append({"gamma": gamma, "gamma2": gamma2, "mse": m, "calm": c.calm + 1 if m < self.eps else 0, "ripe": ripe})
        return met

    def _steps(self, visits: Ids, sizes: Ids) -> Floats:
        """How far running means move; visits [C, n, n] or [C, n] of clusters of `sizes` [C]."""
        if self.step == "1/n":
            return 1 / visits
        step = np.minimum(1.0, visits.shape[1] / sizes) if self.step == "cohort" else np.full(len(sizes), self.alpha)
        return np.broadcast_to(step.reshape(-1, *[1] * (visits.ndim - 1)), visits.shape)

    def visits_wanted(self, attempts: int, by_pairs: bool = True) -> int:
        """How often half of the pairs, or clients, must have been seen for the next attempt."""
        if self.when == "windows":
            return self.visits * (1 if by_pairs else MEETING)
        return int(self.visits * 2**attempts)

    def attempt(self, cluster: Cluster, n_clients: int, seed: int) -> Attempt:
        """Split if it is time to try and Davies-Bouldin agrees."""
        K = len(cluster.members)
        cohort = self._cohort_size(K, n_clients)
        if not self._is_time(cluster, cohort):
            return Attempt(cluster)
        if self.when == "windows":
            return self._end_of_window(cluster)
        n_max = min(self.n_max, K // cohort) if self.groups_by_cohort else self.n_max
        if n_max < 2:
            return Attempt(cluster)
        labels, scores = self._groups(cluster.P, n_max, seed)
        tried = replace(cluster, attempts=cluster.attempts + 1, mse=1.0 if self.failure_resets_mse else cluster.mse, calm=0)
        tried = replace(tried, ripe=_how_many(tried.visits >= self.visits_wanted(tried.attempts)))
        return Attempt(tried, labels, scores)

    def _end_of_window(self, cluster: Cluster) -> Attempt:
        """Divide where the last window would have, if that is worth another model."""
        told = cluster.sides is not None and cluster.spreads is not None and cluster.sides.any()  # rewards alone may be known
        views = [v for v in (cluster.sides, cluster.spreads) if told and v is not None] or [cluster.P.copy()]
        known = with_window(cluster, views)
        cut = self._cut(known)
        verdict = judged(cluster, cut, self.agreement, self.margin, self._by_chance)
        tried = _with_cut(replace(known, attempts=cluster.attempts + (cluster.cut is not None)), cut)
        if cut is None or not verdict.divides:
            return Attempt(self._next_window(tried), verdict=verdict)
        return Attempt(tried, cut.labels, {2: cut.score}, verdict)

    def _by_chance(self, cut: Cut) -> float:
        return best_by_chance((len(cut.labels), len(cut.line)), self.min_size, self.draws, enough=cut.score)

    def _cut(self, known: Cluster) -> Cut | None:
        return best_cut(cloud(known.distances, known.paths, self.directions), self.min_size)

    def affinity(self, P: Floats, distances: Floats | None = None) -> Floats:
        """W [K, K] as this algorithm's settings make it."""
        if self.when == "windows" and distances is not None:
            return np.asarray(np.exp(-distances / max(float(distances.mean()), 1e-12)), np.float64)
        return affinity(P, self.beta, features=self.features, scaled=self.scaled)

    def _groups(self, P: Floats, n_max: int, seed: int) -> tuple[Ids | None, dict[int, float]]:
        below = float(np.nextafter(1.0, 0.0)) if self.strict else 1.0
        labels, scores = fedgw_cluster(
            P,
            self.beta,
            n_max,
            features=self.features,
            score=self.score,
            assign=self.assign,
            scaled=self.scaled,
            min_size=self.min_size,
            below=below,
            seed=seed,
        )
        return (labels if labels.any() else None), scores

    def _next_window(self, cluster: Cluster) -> Cluster:
        c = cluster
        fresh = self._cluster(c.id, c.parent, c.born, c.members, c.server, c.scores, c.by_pairs)
        fresh = replace(fresh, distances=c.distances, paths=c.paths, cut=c.cut, cut_score=c.cut_score)
        return replace(fresh, attempts=c.attempts, mse=c.mse)

    def _is_time(self, cluster: Cluster, cohort: int) -> bool:
        K = len(cluster.members)
        if max(2 * self.min_size, 3) > K:
            return False  # it could not be split, whatever P says
        if self.when in ("windows", "visits"):
            return 2 * cluster.ripe >= K * (K - 1 if cluster.by_pairs else 1)  # half of them: the median was seen often enough
        return cluster.calm >= (1 if self.patience == "none" else max(1, K // cohort))

    def _children(self, cluster: Cluster, labels: Ids, scores: dict[int, float], first: int, number: int) -> list[Cluster]:
        children = []
        for y in range(int(labels.max()) + 1):
            at = np.flatnonzero(labels == y)
            child = self._cluster(first + y, cluster.id, number, cluster.members[at], cluster.server, scores, cluster.by_pairs)
            if known := among(cluster, at):
                child = replace(child, **known)
                child = _with_cut(child, self._cut(child))
            if self.after_split == "keep":
                pairs = np.ix_(at, at)
                visits = cluster.visits[pairs]
                ripe = _how_many(visits >= self.visits_wanted(0))
                child = replace(
                    child, P=cluster.P[pairs], visits=visits, ripe=ripe, gamma=cluster.gamma[at], gamma2=cluster.gamma2[at]
                )
            children.append(child)
        return children

    def _cluster(
        self, id: int, parent: int | None, born: int, members: Ids, server: Server, scores: dict[int, float], by_pairs: bool
    ) -> Cluster:
        K = len(members)
        shape = (K, K) if by_pairs else (K,)
        short = np.int16 if self.when == "windows" else np.int32  # within a window a pair meets a few times
        real, whole = (np.float32, short) if by_pairs and K > perception.LARGE else (np.float64, np.int64)
        # Zeros take no memory until they are written to, and by then the matrices of the window before are gone.
        P = np.zeros(shape, real) if self.start == "zero" else np.full(shape, 1 / K**2, real)
        sides, spreads = np.zeros((2, *shape), real) if self.sides and self.when == "windows" else (None, None)
        visits = np.zeros(shape, whole)
        gammas = np.zeros(K), np.zeros(K)
        return Cluster(id, parent, born, members, server, P, visits, *gammas, scores=scores, sides=sides, spreads=spreads)

    # What a run records

    def numbers(self, state: FedGWCState) -> dict[str, float]:
        numbers = {"mse": float(np.mean([c.mse for c in state.clusters])), "attempts": sum(c.attempts for c in state.clusters)}
        for name, seen in (
            ("contrast", [c.contrast for c in state.clusters if c.within > 0]),
            ("drift", [c.drift for c in state.clusters if c.second > 0]),
        ):
            if seen:
                numbers[name] = float(np.mean(seen))
        return numbers

    def verdicts(self, state: FedGWCState) -> list[dict[str, Any]]:
        """Of the windows that ended with the last round: what was seen, whether it divides, and why in words."""
        asked = self.agreement, self.drift, self.contrast
        return [{**plain(v), "divides": v.divides, "why": in_words(v, *asked)} for v in state.verdicts]

    def events(self, state: FedGWCState) -> dict[str, dict[str, NDArray[Any]]]:
        return recorded_splits(state)

    def matrices(self, state: FedGWCState) -> dict[str, dict[str, NDArray[Any]]]:
        return recorded_leaves(state)

    def tree(self, state: FedGWCState) -> list[dict[str, Any]]:
        return recorded_tree(state)


def _with_cut(c: Cluster, cut: Cut | None) -> Cluster:
    return replace(c, cut=None, cut_score=np.inf) if cut is None else replace(c, cut=cut.labels, cut_score=cut.score)


def _how_many(flags: NDArray[np.bool_]) -> int:
    """Pairs [K, K], not counting a client with itself, or clients [K]."""
    return int(np.count_nonzero(flags) - (np.count_nonzero(flags.diagonal()) if flags.ndim == 2 else 0))
