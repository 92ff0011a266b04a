"""Interaction and affinity matrices of a run and of the whole federation.

The latter is put together from its clusters'.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.auto.cuts import best_cut, seen_across, standing_cuts
from fedgwc.algorithms.auto.windows import places
from fedgwc.algorithms.fedgwc.algorithm import FedGWC
from fedgwc.algorithms.method import Method
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Algorithm
from fedgwc.core.types import Floats, Ids
from fedgwc.report.data import Matrix, Run
from fedgwc.report.figures import embedding
from fedgwc.runs.experiment import experiment

ByLosses = Auto | FedGWC  # what divides clusters by how their clients' losses behave


def algorithm_of(run: Run) -> Algorithm[Any] | None:
    """Rebuild the run's algorithm with its settings; None if another version had other ones."""
    try:
        return experiment(run.experiment).algorithm
    except (InputError, TypeError):
        return None


def by_losses(algorithm: Any) -> ByLosses | None:
    """Return the algorithm's clustering by losses, if it has one."""
    who = algorithm.who if isinstance(algorithm, Method) else algorithm
    return who if isinstance(who, Auto | FedGWC) else None


def affinity_of(rule: ByLosses, P: Floats, distances: Floats | None = None) -> Floats:
    """Compute the affinities W [K, K] as the rule sees them."""
    return rule.affinity(P, distances) if isinstance(rule, Auto) else rule.split.affinity(P)


def at_splits(run: Run) -> list[Matrix]:
    """Return matrices at splits, without divisions that were undone.

    Where there is a tree, it knows none of them.
    """
    ended = {n.id: n.ended for n in run.nodes}
    matrices = (m for m in run.matrices if m.round is not None and ended.get(m.cluster, m.round) == m.round)
    return sorted(matrices, key=lambda m: (m.round or 0, m.cluster))


def at_end(run: Run) -> list[Matrix]:
    return sorted((m for m in run.matrices if m.round is None), key=lambda m: m.cluster)


def children_of(run: Run, matrix: Matrix) -> Ids:
    """Return the cluster that each member went to [K].

    At the end, the one it is in.
    """
    into = np.full(len(matrix.members), matrix.cluster, np.int64)
    if matrix.round is not None:
        for child in run.children(matrix.cluster):
            into[np.isin(matrix.members, child.members)] = child.id
    return into


def whole_federation(run: Run, rule: ByLosses) -> tuple[Floats, Floats]:
    """Assemble P and W [N, N] of all clients.

    Pairs that were parted keep their values of then; 0: never met.
    """
    P, W = np.zeros((2, len(run.clusters), len(run.clusters)))
    for matrix in [*at_splits(run), *at_end(run)]:  # later ones overwrite earlier ones
        if matrix.P is not None:
            pairs = np.ix_(matrix.members, matrix.members)
            P[pairs], W[pairs] = matrix.P, affinity_of(rule, matrix.P, matrix.distances)
    return P, W


def has_plane(matrix: Matrix) -> bool:
    """Tell whether at least four clients have been seen."""
    seen = matrix.paths is not None if matrix.P is None else bool(matrix.P.any())
    return seen and len(matrix.members) >= 4


def plane(matrix: Matrix, rule: ByLosses) -> tuple[Floats, tuple[str, str]]:
    """Return points [K, 2] on which a split is based, and the axes' names."""
    if isinstance(rule, Auto) and not (matrix.distances is None and matrix.paths is None):
        helping, points = places(matrix, rule.directions)
        cut = best_cut(points, rule.min_size, rule.n_max)
        if matrix.labels is not None:  # the cut that was made may be another one, which stood from windows before
            cuts = [*([] if cut is None else [cut]), *standing_cuts(points, matrix.labels, rule.min_size)]
            cut = next((c for c in cuts if (c.labels == matrix.labels).all()), None)
        if cut is not None:
            line = "along the line that is cut" if matrix.labels is not None else "along the line of the best cut"
            return seen_across(points, cut), (line, "first axis, square to it")
        if matrix.labels is not None:  # by who helps whom alone
            return np.pad(points, ((0, 0), (0, 2)))[:, :2], ("axis of who helps whom" if helping else "first axis", "second axis")
    if matrix.P is None:
        return np.pad(points, ((0, 0), (0, 2)))[:, :2], ("first axis", "second axis")
    return embedding.plane(affinity_of(rule, matrix.P)), ("second eigenvector", "third eigenvector")
