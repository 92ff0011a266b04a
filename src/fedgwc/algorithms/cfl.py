"""CFL (Sattler, Mueller and Samek, 2020): bipartition by the cosine of updates.

One model trains until it stands still, and its clients are divided where their updates still point apart.

Where the common model stands still the clients' updates cancel. If each of them is small, the model suits everybody. If not,
clients of one group pull the same way, and the cosines of their updates show the groups; each goes on as its own cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.groups import Groups, GroupState, Parents, Plan, Round, joined, labels_of, plan_of
from fedgwc.core import random
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Engine, Observation
from fedgwc.core.sampling import cohort_size, sample
from fedgwc.core.search import Between
from fedgwc.core.tensors import to_device
from fedgwc.core.types import Floats, Ids, Rng


@dataclass(frozen=True)
class Cluster:
    """Clients that share a model."""

    id: int
    parent: int | None
    born: int  # the round after which it came to be
    members: Ids  # [K]
    mean_norm: float = 0.0  # of the mean update, last measured
    max_norm: float = 0.0  # the largest of the last cohort's updates
    longest: float = 0.0  # the largest of all cohorts' updates since it came to be


@dataclass(frozen=True)
class Split:
    """A cluster that was divided."""

    id: int
    parent: int | None
    born: int
    members: Ids  # [K]
    ended: int
    cross_similarity: float  # the largest cosine across the cut


@dataclass(frozen=True)
class LastUpdates:
    """Each client's last update, relative to its present cluster's model."""

    updates: Tensor  # [N, n_params], or [N, d] sketches of them
    weights: Floats  # [N]; 0: nothing known


@dataclass(frozen=True)
class CFLState(GroupState):
    clusters: tuple[Cluster, ...]
    splits: tuple[Split, ...]
    known: LastUpdates

    def labels(self) -> Ids:
        return labels_of([c.members for c in self.clusters])

    def numbers(self) -> Ids:
        return np.array([c.id for c in self.clusters], np.int64)

    def copied(self) -> CFLState:
        return replace(self, known=LastUpdates(self.known.updates.clone(), self.known.weights.copy()))

    def observe(self) -> Observation:
        """Report the lengths that eps1 and eps2 are compared with.

        Of the cluster whose members' updates are the longest.
        """
        most = max(self.clusters, key=lambda c: c.max_norm)
        return Observation({"mean_norm": most.mean_norm, "max_norm": most.max_norm, "longest": most.longest})

    def tree(self) -> list[dict[str, Any]]:
        nodes: list[Cluster | Split] = [*self.splits, *self.clusters]
        keys = ("id", "parent", "born", "ended", "cross_similarity")
        rows = [{k: getattr(n, k, None) for k in keys} | {"members": n.members.tolist(), "scores": {}} for n in nodes]
        return sorted(rows, key=lambda row: row["id"])


@dataclass(frozen=True)
class CFL(Groups[CFLState]):
    """Recursive bipartition by the cosine similarity of updates.

    Lengths of updates depend on the model and on local training, so by default both thresholds are shares of a length.
    """

    learns_from = "updates"

    eps1: Annotated[float, "the cluster stands still when its mean update is shorter", Between(0.05, 0.8, log=True)] = 0.2
    eps2: Annotated[float, "and somebody still pulls when the longest update is longer", Between(0.5, 0.99)] = 0.9
    lengths: Annotated[
        Literal["relative", "absolute"], "eps1 and eps2 are shares of the longest update the cluster has seen, or lengths"
    ] = "relative"
    gamma: Annotated[float, "bound on the noise of a client's gradient, in [0, 1): a cut must be wider; 0: any cut"] = 0.0
    linkage: Annotated[Literal["single", "complete"], "the optimal cut, or a balanced one as in public code"] = "single"
    min_size: Annotated[int, "smallest cluster; 1: the paper's"] = 3
    seen: Annotated[float, "share of a cluster whose updates must be known before it may split"] = 0.9
    memory_mb: Annotated[int, "most that the known updates may take; beyond, they are kept as sketches"] = 256
    sketch: Annotated[int, "numbers per sketch; cosines are then off by about 1 / sqrt(sketch)"] = 4096

    def __post_init__(self) -> None:
        if not (self.eps1 > 0 and self.eps2 > 0 and 0 <= self.gamma < 1 and 0 < self.seen <= 1):
            got = f"{self.eps1}, {self.eps2}, {self.gamma} and {self.seen}"
            raise InputError(f"cfl eps1 and eps2 must be positive, gamma in [0, 1) and seen in (0, 1], got {got}")
        if self.lengths == "relative" and max(self.eps1, self.eps2) >= 1:
            raise InputError(
                f"cfl eps1 and eps2 are shares of the longest update seen, below 1, got {self.eps1} and {self.eps2}; "
                f"lengths=absolute takes them as lengths, as the paper does"
            )
        if min(self.min_size, self.sketch) < 1 or self.memory_mb < 0:
            got = f"{self.min_size}, {self.sketch} and {self.memory_mb}"
            raise InputError(f"cfl min_size and sketch must be >= 1 and memory_mb >= 0 (0: always sketches), got {got}")

    def init(self, model: Tensor, n_clients: int, rate: float) -> tuple[Sequence[Tensor], CFLState]:
        root = Cluster(0, None, 0, np.arange(n_clients))
        return [model], CFLState((root,), (), LastUpdates(model.new_empty(n_clients, 0), np.zeros(n_clients)))

    def plan(self, state: CFLState, servers: Sequence[Server], rate: float, engine: Engine, rng: Rng) -> Plan:
        cohorts = [sample(c.members, cohort_size(len(c.members), rate), rng.generator(c.id)) for c in state.clusters]
        return plan_of(cohorts, servers)

    def regroup(self, state: CFLState, round: Round) -> tuple[CFLState, Ids, Parents]:
        """Divide clusters before the server's step.

        Each side takes the mean of its own updates of the round, as if it had been a cluster before.
        """
        updates = round.updates
        rows = round.groups_of(state.labels)
        if not len(updates):
            return state, rows, None
        models = round.plan.models
        pulls = updates.parameters - models[to_device(models.device, rows), : updates.n_params]  # [n, n_params]
        lengths = pulls.norm(dim=1).cpu().numpy()
        known = self._remember(state.known, updates.clients, round.weights, pulls, round.rng.seed)

        clusters: list[Cluster] = []
        parents: list[int] = []
        splits = list(state.splits)
        for i, c in enumerate(state.clusters):
            longest = float(lengths[rows == i].max(initial=0))
            c = replace(c, mean_norm=mean_norm(known, c.members), max_norm=longest, longest=max(c.longest, longest))
            sides, crossing = self.cut(c, known)
            if sides is None:
                clusters.append(c)
                parents.append(i)
                continue
            first = 1 + 2 * len(splits)  # every split bears two
            clusters += [Cluster(first + side, c.id, round.rng.round, c.members[sides == side]) for side in (0, 1)]
            parents += [i, i]
            splits.append(Split(c.id, c.parent, c.born, c.members, round.rng.round, crossing))
            known = replace(known, weights=np.where(np.isin(np.arange(len(known.weights)), c.members), 0.0, known.weights))
        state = CFLState(tuple(clusters), tuple(splits), known)
        return state, state.labels()[updates.clients], parents

    def grow(self, state: CFLState, rows: Ids) -> tuple[CFLState, Parents]:
        kept, first = state.known, len(state.known.weights)
        clusters = tuple(replace(c, members=joined(c.members, rows, i, first)) for i, c in enumerate(state.clusters))
        updates = torch.cat([kept.updates, kept.updates.new_zeros(len(rows), kept.updates.shape[1])])
        return CFLState(clusters, state.splits, LastUpdates(updates, np.r_[kept.weights, np.zeros(len(rows))])), None

    def _remember(self, known: LastUpdates, clients: Ids, weights: Floats, pulls: Tensor, seed: int) -> LastUpdates:
        """Keep each client's newest update where `known` has it.

        The full vectors if all of them fit, else sketches.
        """
        n_clients, n_params = len(known.weights), pulls.shape[1]
        kept = known.updates if known.updates.shape[1] else pulls.new_zeros(n_clients, 0)
        if n_clients * n_params * pulls.element_size() > self.memory_mb * 2**20 and self.sketch < n_params:
            pulls = sketched(pulls, self.sketch, seed)
            if kept.shape[1] == n_params:  # clients have joined since, and now not all of them fit whole
                kept = sketched(kept, self.sketch, seed)
        kept = kept if kept.shape[1] else pulls.new_zeros(n_clients, pulls.shape[1])
        kept[to_device(kept.device, clients)] = pulls
        known.weights[clients] = weights
        return LastUpdates(kept, known.weights)

    def cut(self, cluster: Cluster, known: LastUpdates) -> tuple[Ids | None, float]:
        """Return each member's side (0 or 1) and the largest cosine across.

        (None, nan) if the cluster is not divided.
        """
        met = known.weights[cluster.members] > 0
        unit = cluster.longest if self.lengths == "relative" else 1.0
        torn = cluster.mean_norm < self.eps1 * unit and cluster.max_norm > self.eps2 * unit
        if not torn or met.mean() < self.seen or met.sum() < 2 * self.min_size:
            return None, np.nan
        sides, crossing = bipartition(cosines(known.updates[to_device(known.updates.device, cluster.members[met])]), self.linkage)
        sizes = np.bincount(sides, minlength=2)
        if sizes.min() < self.min_size or np.sqrt((1 - crossing) / 2) <= self.gamma:
            return None, np.nan
        everybody = np.full(len(met), sizes.argmax())  # members that were never heard go with the larger side
        everybody[met] = sides
        return everybody, crossing


def mean_norm(known: LastUpdates, members: Ids) -> float:
    """Return the length of the members' weighted mean update.

    Over those members whose update is known.
    """
    weights = known.weights[members]  # 0 or at least 1
    kept = known.updates
    w = to_device(kept.device, weights / max(weights.sum(), 1.0)).to(kept.dtype)
    theirs = kept if len(members) == len(kept) else kept[to_device(kept.device, members)]  # of everybody, no copy
    return float((w @ theirs).norm())


def cosines(updates: Tensor) -> Floats:
    """Return cosine similarities [m, m] of updates.

    An update of length 0 is at right angles to all others.
    """
    unit = torch.nn.functional.normalize(updates)
    # In double, a part at a time: what a GPU makes of float32 products depends on switches that training turns.
    products = sum(part @ part.T for part in (p.double() for p in unit.split(2**18, dim=1)))
    return np.asarray(torch.as_tensor(products).cpu(), np.float64).clip(-1, 1)


def bipartition(similarity: Floats, method: str = "single") -> tuple[Ids, float]:
    """Divide clients so that the largest similarity across is smallest.

    similarity [m, m] -> (side [m], that similarity).

    The paper's merging of the most similar pairs until two groups are left is single linkage: it cuts the weakest edge of a
    maximum spanning tree, and every other cut crosses some edge of that tree too, none of them weaker.
    """
    distance = 1 - (similarity + similarity.T) / 2
    np.fill_diagonal(distance, 0)
    sides: Ids = cut_tree(linkage(squareform(distance, checks=False), method), 2)[:, 0].astype(np.int64)
    return sides, float(1 - distance[np.ix_(sides == 0, sides == 1)].min())


def sketched(x: Tensor, d: int, seed: int) -> Tensor:
    """Sketch x [n, p] as [n, d] with about the same inner products.

    Each column is added to a random column with a random sign.

    A count sketch (Charikar, Chen and Farach-Colton, 2002). Unlike a dense projection it needs no matrix of p x d.
    """
    key, column = torch.tensor(seed), torch.arange(x.shape[1], device=x.device)
    place = random.integers(random.mix(key), column, d)
    sign = 1 - 2 * random.integers(random.mix(key + 1), column, 2)
    return x.new_zeros(len(x), d).index_add_(1, place, x * sign)
