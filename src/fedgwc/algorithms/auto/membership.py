"""A cluster whose members change: some leave it, others join."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.auto.state import Cluster, written
from fedgwc.core.types import Floats, Ids


def with_members(c: Cluster, members: Ids) -> Cluster:
    """The cluster with these `members`, sorted. It keeps what is known of those who stay; of newcomers nothing is known.

    `ripe` is not changed, which is right only if nobody leaves.
    """
    if np.array_equal(members, c.members):
        return c
    stay = np.isin(members, c.members)
    was = c.members.searchsorted(members[stay])
    means = {**written(c), "gamma": c.gamma, "gamma2": c.gamma2, "level": c.level, "late": c.late}
    known: dict[str, Any] = {
        name: _rearranged(a, stay, was, np.nan if name == "level" else 0) for name, a in means.items() if a is not None
    }
    if c.distances is not None:
        known["distances"] = _newcomers_in_the_middle(known["distances"], stay)
    if c.paths is not None:
        paths = c.paths[was]
        known["paths"] = np.tile(paths.mean(0), (len(members), 1))
        known["paths"][stay] = paths
    if c.before is not None:
        last = c.members[c.before]
        known["before"] = members.searchsorted(last) if np.isin(last, members).all() else None
    return replace(c, members=members, cut=None, told=0.0, told2=0.0, **known)


def _rearranged(a: NDArray[Any], stay: NDArray[np.bool_], was: Ids, empty: float) -> NDArray[Any]:
    """`a` [K] or [K, K] rearranged for the new members, with `empty` for newcomers."""
    new = np.full((len(stay),) * a.ndim, empty, a.dtype)
    new[np.ix_(*[stay] * a.ndim)] = a[np.ix_(*[was] * a.ndim)]
    return new


def _newcomers_in_the_middle(distances: Floats, stay: NDArray[np.bool_]) -> Floats:
    """Squared distances with newcomers in the middle of the others, as nothing is known of them."""
    among = distances[np.ix_(stay, stay)]
    to_middle = among.mean(0) - among.mean() / 2  # exact: the squared distance of a point to the mean of all
    distances[np.ix_(~stay, stay)] = to_middle
    distances[np.ix_(stay, ~stay)] = to_middle[:, None]
    return distances
