"""FedGWC (Licciardi, Leo, Fani, Caputo and Ciccone, ICML 2025), Algorithm 2.

Every cluster trains like FedAvg does. On the side it watches the losses that its clients report anyway: a client whose loss lies
near its cohort's mean gets a high reward, and the interaction matrix P keeps, for every pair sampled together, a running mean
of the first one's rewards. When P has converged, clients that are perceived alike are grouped, and each group goes on as a
cluster of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from torch import Tensor

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.fedgwc.interactions import check_rewards, move
from fedgwc.algorithms.fedgwc.rewards import rewards_of
from fedgwc.algorithms.fedgwc.splits import PaperSplit, SplitRule
from fedgwc.algorithms.fedgwc.state import Cluster, FedGWCState, Split
from fedgwc.algorithms.groups import Groups, Parents, Plan, Round, joined, plan_of
from fedgwc.algorithms.losses import LossStatistics
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Engine
from fedgwc.core.sampling import cohort_size, sample
from fedgwc.core.search import Between
from fedgwc.core.settings import FLAT
from fedgwc.core.types import Floats, Ids, Rng, Updates

FEWEST = 3  # answers of a cluster from which interactions can be learnt


@dataclass(frozen=True)
class FedGWC(Groups[FedGWCState]):
    """Recursive clustering by the interactions of clients' losses; the defaults are the paper's text."""

    learns_from = "rewards"
    statistics: Annotated[Literal["plain", "weighted"], "of the cohort's losses: plain, or by sample counts"] = "plain"
    normalise: Annotated[bool, "divide rewards by their sum over the cohort"] = False
    alpha: Annotated[float, "step of the running means; 0: cohort size / cluster size", Between(0.01, 0.5, log=True)] = 0.1
    start: Annotated[Literal["zero", "1/K^2"], "entries of P at the start"] = "zero"
    cohort: Annotated[Literal["rate", "same"], "same: every cluster samples as many as the whole federation would"] = "rate"
    sampling: Annotated[Literal["uniform", "rare-first"], "rare-first: with weights softmax(min count - count)"] = "rare-first"
    pairs_up_to: Annotated[int, "most clients, since P holds every pair of them"] = 20_000
    split: SplitRule = field(default_factory=PaperSplit, metadata=FLAT)

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"alpha must be in [0, 1], got {self.alpha}; 0 stands for cohort size / cluster size")

    # Algorithm 2: the initial cluster, with P = 0 and MSE = 1

    def init(self, model: Tensor, n_clients: int, rate: float) -> tuple[Sequence[Tensor], FedGWCState]:
        self.warnings(n_clients)
        root = Cluster.root(n_clients, 0.0 if self.start == "zero" else 1 / n_clients**2)
        return [model], FedGWCState((root,), (), np.zeros(n_clients, np.int64))

    # for each cluster n: sample the cohort; its clients receive the model of the cluster, train it and report their losses

    def plan(self, state: FedGWCState, servers: Sequence[Server], rate: float, engine: Engine, rng: Rng) -> Plan:
        return plan_of([self._cohort(c, state, rate, rng) for c in state.clusters], servers)

    # the cluster's server aggregates the models of its own clients

    def regroup(self, state: FedGWCState, round: Round) -> tuple[FedGWCState, Ids, Parents]:
        state.sampled[round.updates.clients] += 1
        return state, round.groups_of(state.labels), None

    # for each cluster n: rewards, P, MSE; where MSE < eps, FedGW_Cluster divides the cluster and P along with it

    def divide(self, state: FedGWCState, round: Round, group: Ids) -> tuple[FedGWCState, Parents]:
        clusters: list[Cluster] = []
        parents: list[int] = []
        splits = [s if s.P is None else replace(s, P=None) for s in state.splits]
        n_born, N = state.n_born, len(state.sampled)
        for i, cluster in enumerate(state.clusters):
            c = self._learn(cluster, round.updates.rows(np.flatnonzero(group == i)))
            c, labels, scores = self.split.attempt(c, self._cohort_size(len(c.members), N, round.rate), round.rng.seed)
            if labels is None:
                clusters.append(c)
                parents.append(i)
                continue
            groups = [np.flatnonzero(labels == y) for y in range(int(labels.max()) + 1)]
            clusters += [c.child(at, n_born + y, round.rng.round, scores) for y, at in enumerate(groups)]
            parents += [i] * len(groups)
            n_born += len(groups)
            splits.append(Split(c.id, c.parent, c.born, round.rng.round, c.members, labels, c.scores, c.P))
        return FedGWCState(tuple(clusters), tuple(splits), state.sampled, n_born), parents

    def _learn(self, c: Cluster, updates: Updates) -> Cluster:
        """Update weights (Eq. 2) and interactions (Eq. 3) from the answers' rewards (Eq. 1)."""
        omega, updates = self._rewards(updates)
        if omega is None:
            return c
        at = c.members.searchsorted(updates.clients)
        alpha = self.step(len(at), len(c.members))
        pairs = np.ix_(at, at)
        c.visits[pairs] += 1
        before = c.P[pairs]
        move(c.P, pairs, omega[:, None], alpha)
        gamma, gamma2 = c.gamma.copy(), c.gamma2.copy()
        move(gamma, at, omega, alpha)
        move(gamma2, at, omega**2, alpha)
        return self.split.watch(replace(c, gamma=gamma, gamma2=gamma2), c.P[pairs] - before, alpha)

    def _rewards(self, updates: Updates) -> tuple[Floats | None, Updates]:
        """Return rewards [n], None from too few answers, and the answers they belong to."""
        if updates.rewards is not None:  # computed by the clients themselves, where losses are private
            updates = updates.rows(np.flatnonzero(updates.rewards.isfinite()))
        if len(updates) < FEWEST:
            return None, updates
        if updates.rewards is None:
            sizes = updates.sizes.numpy() if self.statistics == "weighted" else None
            return rewards_of(LossStatistics.of(updates.losses.numpy(), sizes), self.normalise), updates
        omega = check_rewards(updates.rewards.double().numpy())
        return (omega / omega.sum() if self.normalise else omega), updates

    def step(self, n: int, K: int) -> float:
        """Return the step of the running means for n answers of K clients."""
        return self.alpha or min(1.0, n / K)

    def _cohort_size(self, n_members: int, n_clients: int, rate: float) -> int:
        return min(n_members, cohort_size(n_clients if self.cohort == "same" else n_members, rate))

    def _cohort(self, c: Cluster, state: FedGWCState, rate: float, rng: Rng) -> Ids:
        size, draws = self._cohort_size(len(c.members), len(state.sampled), rate), rng.generator(c.id)
        if size == len(c.members) or self.sampling == "uniform":
            return sample(c.members, size, draws)
        seen = state.sampled[c.members]
        weights = np.exp((seen.min() - seen).astype(np.float64))
        weights = np.maximum(weights / weights.sum(), 1e-12)  # everybody can be drawn
        return np.sort(draws.choice(c.members, size, replace=False, p=weights / weights.sum()))

    def room(self, state: FedGWCState) -> int:
        return max(0, self.pairs_up_to - len(state.sampled))

    def grow(self, state: FedGWCState, rows: Ids) -> tuple[FedGWCState, Parents]:
        first = len(state.sampled)
        clusters = tuple(c.with_members(joined(c.members, rows, i, first)) for i, c in enumerate(state.clusters))
        return replace(state, clusters=clusters, sampled=np.pad(state.sampled, (0, len(rows)))), None

    def warnings(self, n_clients: int) -> list[str]:
        if n_clients > self.pairs_up_to:
            raise InputError(
                f"{n_clients:,} clients are more than pairs_up_to={self.pairs_up_to}: P and its affinities hold every pair, "
                f"{12 * n_clients**2 / 2**30:.1f} GiB; set pairs_up_to={n_clients} if there is so much memory, or choose auto"
            )
        return []
