"""FedGWC (Licciardi, Leo, Fani, Caputo and Ciccone, ICML 2025): one model per group of clients whose losses behave alike.

Every cluster trains like FedAvg does. On the side it watches the losses its clients report anyway: a client whose loss lies
near its cohort's mean gets a high reward, and the interaction matrix P keeps, for every pair sampled together, the mean
reward of the first. When P has settled, clients that are perceived alike are grouped, and each group goes on as a cluster
of its own. Every place where the paper and its authors' release differ, stay silent, or split what should stay whole, is a
setting here; docs/algorithms/fedgwc.md says what each one does and why the default is what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.algorithms.aggregate import Aggregator, Server
from fedgwc.algorithms.auto.beginnings import children, fresh, next_window, with_cut
from fedgwc.algorithms.auto.learning import how_many, learnt
from fedgwc.algorithms.auto.proposals import proposed
from fedgwc.algorithms.auto.second_look import is_tried, resolve_trials, who_waits
from fedgwc.algorithms.auto.settings import ALLOWED, USED_BY
from fedgwc.algorithms.auto.state import (
    Cluster,
    FedGWCState,
    Split,
    copied,
    labels_of,
    recorded_leaves,
    recorded_splits,
    recorded_tree,
)
from fedgwc.algorithms.auto.verdicts import NO_ONE_WAITS, NOBODY, Attempt, in_words, judged
from fedgwc.algorithms.auto.windows import with_window
from fedgwc.algorithms.fedgwc.interactions import Features, Score, affinity, fedgw_cluster
from fedgwc.algorithms.fedgwc.spectral import Assign
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Engine
from fedgwc.core.sampling import check_rate, cohort_size, sample
from fedgwc.core.settings import plain
from fedgwc.core.tensors import stacked
from fedgwc.core.types import Clustering, Floats, Ids, Rng

MEETING = 10  # where a tenth of the clients train, a client meets a given other one about once in this many of its rounds
# Half of the clients train this often before a window ends: in a small cluster all pairs meet before the model has adapted.
SETTLED = 10


@dataclass(frozen=True)
class FedGWC:
    """Algorithm 2. The defaults are the preset `fedgwc`; ALGORITHMS has `fedgwc-paper` and `fedgwc-release`."""

    rate: Annotated[float, "share of each cluster that trains in a round (at least 3 clients)"] = 0.1
    aggregator: Aggregator = field(default_factory=Aggregator)
    beta: Annotated[float, "spread of the RBF kernel"] = 0.5
    n_max: Annotated[int, "most groups that are looked for; windows then cuts in two, at the widest gap"] = 5
    min_size: Annotated[int, "smallest group; 3 / rate would keep the clients trained per round constant, up to rounding"] = 3
    # Rewards
    statistics: Annotated[Literal["plain", "weighted"], "of the cohort's losses: plain, or by sample counts"] = "plain"
    loss_samples: Annotated[int, "> 0: mean and variance of this many normal draws instead"] = 0
    normalise: Annotated[bool, "divide rewards by their sum over the cohort"] = False
    sides: Annotated[bool, "keep two more matrices like P: on which side of the mean losses lie, and how much they vary"] = True
    echo: Annotated[bool, "and a third: how much lower k's first loss is after j has trained; needs sides and pairs"] = True
    # Interactions
    step: Annotated[Literal["1/n", "constant", "cohort"], "1 / visits of the pair; alpha; cohort size / cluster size"] = "1/n"
    alpha: Annotated[float, "of step=constant"] = 0.1
    start: Annotated[Literal["zero", "1/K^2"], "entries of a fresh P"] = "zero"
    # When to try a split
    when: Annotated[Literal["windows", "visits", "mse"], "what triggers an attempt to divide"] = "windows"
    visits: Annotated[int, "half of all pairs have met so often at a window's end; when=visits: try at 1, 2, 4, ... times it"] = 1
    agreement: Annotated[float, "least adjusted Rand index between the cuts of two windows in a row"] = 0.94
    directions: Annotated[int, "leading axes of the clients' cloud in which a cut is searched for, all or the first few"] = 6
    contrast: Annotated[float, "in half of the rounds: variance of losses between clients over that within one, minus 1"] = 2.0
    gain: Annotated[float, "how much better than one group several must describe clients, for each more; scale of BIC"] = 4.0
    doubt: Annotated[float, "extra gain where too few can try the division, and again for each one that was undone"] = 11.0
    drift: Annotated[float, "divide regardless if the first step's loss is at least 1 + this times the second's"] = 1.0
    second_look: Annotated[bool, "groups are divided on trial: some clients sit out, then tell which model serves them"] = True
    pairs_up_to: Annotated[int, "above so many clients, windows keeps what it knows by client, not by pair"] = 4096
    eps: Annotated[float, "when=mse: attempt when the mse of P is below this"] = 1e-5
    mse_over: Annotated[Literal["matrix", "touched"], "entries whose squared change is averaged"] = "matrix"
    mse_average: Annotated[bool, "take an exponential average of it over rounds"] = False
    patience: Annotated[Literal["none", "sweep"], "sweep: mse below eps for cluster size / cohort size rounds in a row"] = "none"
    failure_resets_mse: Annotated[bool, "an attempt puts the mse back to 1"] = False
    # How to split
    features: Annotated[Features, "perception vectors are rows or columns of P"] = "rows"
    scaled: Annotated[bool, "bring P to [0, 1] by its smallest and largest entry first"] = False
    score: Annotated[Score, "what Davies-Bouldin looks at: rows of the affinity, or of its spectral embedding"] = "embedding"
    assign: Annotated[Assign, "how the embedding becomes labels"] = "cluster_qr"
    groups_by_cohort: Annotated[bool, "at most cluster size / cohort size groups"] = False
    strict: Annotated[bool, "Davies-Bouldin below 1, not at most 1"] = False
    after_split: Annotated[Literal["reset", "keep"], "the children's P: fresh, or cut out of the parent's"] = "reset"
    # Sampling
    cohort: Annotated[Literal["rate", "same"], "same: every cluster samples as many as the whole federation would"] = "rate"
    sampling: Annotated[Literal["uniform", "rare-first"], "rare-first: with weights softmax(min count - count)"] = "uniform"

    def __post_init__(self) -> None:
        check_rate(self.rate)
        for name, (allowed, is_allowed) in ALLOWED.items():
            if not is_allowed(getattr(self, name)):
                raise InputError(f"{name} must be {allowed}, got {getattr(self, name)}")
        if self.when == "windows" and (self.step != "1/n" or self.start != "zero" or self.after_split != "reset"):
            raise InputError(
                f"when=windows compares plain means over windows: it needs step 1/n, start zero and after_split reset, "
                f"got {self.step}, {self.start} and {self.after_split}"
            )

    @property
    def idle(self) -> frozenset[str]:
        """Settings without any effect beside the others."""
        unused = {name for name, rules in USED_BY.items() if self.when not in rules}
        if self.step != "constant":
            unused.add("alpha")
        if not self.sides:
            unused |= {"echo", "second_look"}
        return frozenset(unused)

    def init(self, model: Tensor, n_clients: int) -> FedGWCState:
        self.notes(n_clients)
        root = fresh(self, 0, None, 0, np.arange(n_clients), Server(model), {}, n_clients <= self.pairs_up_to)
        return FedGWCState((root,), (), np.zeros(n_clients, np.int64))

    def notes(self, n_clients: int) -> list[str]:
        """What a user should know about a federation of this size; InputError if it is too large."""
        if few := self.too_few(n_clients):
            return [few]
        if n_clients <= self.pairs_up_to:
            return []
        most = f"{n_clients:,} clients are more than algorithm.pairs_up_to={self.pairs_up_to}"
        if self.when == "windows":
            return [f"{most}: what is known is kept by client, not by pair of clients"]
        raise InputError(
            f"{most}, and when={self.when} needs to know every pair: {12 * n_clients**2 / 2**30:.1f} GiB with the affinity; "
            f"set algorithm.pairs_up_to={n_clients} if there is so much memory, or when=windows as the preset fedgwc has it"
        )

    def too_few(self, n_clients: int) -> str:
        """That so few clients are never divided; empty if they may be."""
        if self.is_divisible(n_clients):
            return ""
        return f"{n_clients} clients are never divided, it takes at least {self.fewest} (with algorithm.min_size={self.min_size})"

    def round(self, state: FedGWCState, engine: Engine, rng: Rng) -> FedGWCState:
        return self.advance(copied(state), engine, rng)

    def advance(self, state: FedGWCState, engine: Engine, rng: Rng) -> FedGWCState:
        """A round that overwrites the matrices of the given state, for a caller who needs that state no more.

        It touches only the entries of the cohorts' pairs, whatever the number of clients.
        """
        cohorts = [self._sample(c, state, rng) for c in state.clusters]
        asked, which = np.concatenate(cohorts), np.repeat(np.arange(len(cohorts)), [len(c) for c in cohorts])
        models = stacked([c.server.theta for c in state.clusters])
        updates = engine.train(asked, models, which, rng.training)
        sampled = state.sampled
        sampled[updates.clients] += 1
        # In most rounds everybody answers, in the order asked.
        own = which if np.array_equal(updates.clients, asked) else labels_of(state)[updates.clients]  # [n]

        leaves: list[Cluster] = []
        splits = [s if s.P is None else replace(s, P=None, distances=None, paths=None, echo=None) for s in state.splits]
        n_born = state.n_born
        clusters = learnt(self, state.clusters, updates, own, rng)
        clusters, splits, verdicts = resolve_trials(self, clusters, splits, engine, len(sampled), rng.round)
        for cluster in clusters:
            tried = self.attempt(cluster, len(sampled), rng.seed)
            verdicts += [] if tried.verdict is None else [tried.verdict]
            c, labels = tried.cluster, tried.labels
            if labels is None:
                leaves.append(c)
                continue
            born = children(self, c, labels, tried.scores, n_born, rng.round, tried.waiting)
            n_born += len(born)
            leaves += born
            splits.append(Split.of(c, labels, ended=rng.round))
        return FedGWCState(tuple(leaves), tuple(splits), sampled, n_born, tuple(verdicts))

    def sitting_out(self, state: FedGWCState) -> Ids:
        """Clients that must not train now, not even in place of an absent one."""
        return np.concatenate([NOBODY, *(c.waiting for c in state.clusters if c.waiting is not None)])

    def clustering(self, state: FedGWCState) -> Clustering:
        models = stacked([c.server.theta for c in state.clusters])
        return Clustering(models, labels_of(state), np.array([c.id for c in state.clusters], np.int64))

    # The steps of a round, in order

    def _sample(self, cluster: Cluster, state: FedGWCState, rng: Rng) -> Ids:
        members = cluster.members if cluster.waiting is None else np.setdiff1d(cluster.members, cluster.waiting)
        size = self.cohort_of(len(members), len(state.sampled))
        if size == len(members):
            return members
        draws = rng.generator(cluster.id)
        if self.sampling == "uniform":
            return sample(members, size, draws)
        seen = state.sampled[members]
        weights = np.exp((seen.min() - seen).astype(np.float64))
        weights = np.maximum(weights / weights.sum(), 1e-12)  # everybody can be drawn
        return np.sort(draws.choice(members, size, replace=False, p=weights / weights.sum()))

    def cohort_of(self, n_members: int, n_clients: int) -> int:
        return min(n_members, cohort_size(n_clients if self.cohort == "same" else n_members, self.rate))

    def visits_wanted(self, attempts: int, by_pairs: bool = True) -> int:
        """How often half of the pairs (or clients) must have been seen before the next attempt; `_settled` may ask for more."""
        if self.when == "windows":
            return self.visits * (1 if by_pairs else MEETING)
        return int(self.visits * 2**attempts)

    def attempt(self, cluster: Cluster, n_clients: int, seed: int) -> Attempt:
        """Split the cluster if it is time to try and there is enough evidence."""
        K = len(cluster.members)
        cohort = self.cohort_of(K, n_clients)
        if not self._is_time(cluster, cohort):
            return Attempt(cluster)
        if self.when == "windows":
            return self._end_of_window(cluster)
        n_max = min(self.n_max, K // cohort) if self.groups_by_cohort else self.n_max
        if n_max < 2:
            return Attempt(cluster)
        labels, scores = self._groups(cluster.P, n_max, seed)
        tried = replace(cluster, attempts=cluster.attempts + 1, mse=1.0 if self.failure_resets_mse else cluster.mse, calm=0)
        tried = replace(tried, ripe=how_many(tried.visits >= self.visits_wanted(tried.attempts)))
        return Attempt(tried, labels, scores)

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
        """The affinities W [K, K] under these settings."""
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

    @property
    def fewest(self) -> int:
        """Clients of a cluster that may be divided."""
        return max(2 * self.min_size, 3)

    def is_divisible(self, K: int) -> bool:
        """Whether K clients are enough for two groups."""
        return self.fewest <= K

    def _is_time(self, cluster: Cluster, cohort: int) -> bool:
        K = len(cluster.members)
        if not self.is_divisible(K) or cluster.waiting is not None:
            return False
        if self.when in ("windows", "visits"):
            often = 2 * cluster.ripe >= K * (K - 1 if cluster.by_pairs else 1)  # at least half of the pairs or clients
            return often and (self.when == "visits" or not cluster.by_pairs or _settled(cluster))
        return cluster.calm >= (1 if self.patience == "none" else max(1, K // cohort))

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
        """The last round's verdicts: what was seen, whether the cluster is divided, and why, in words."""
        asked = self.agreement, self.drift, self.contrast
        return [{**plain(v), "divides": v.divides, "why": in_words(v, *asked)} for v in state.verdicts]

    def events(self, state: FedGWCState) -> dict[str, dict[str, NDArray[Any]]]:
        return recorded_splits(state)

    def matrices(self, state: FedGWCState) -> dict[str, dict[str, NDArray[Any]]]:
        return recorded_leaves(state)

    def tree(self, state: FedGWCState) -> list[dict[str, Any]]:
        return recorded_tree(state)


def _settled(c: Cluster) -> bool:
    """Whether half of the members have trained often enough for a window to end."""
    return bool(2 * np.count_nonzero(c.visits.diagonal() >= SETTLED) >= len(c.members))
