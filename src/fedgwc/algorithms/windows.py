"""What windows of rounds add up to, and where that sets clients.

By pairs: the squared distances between clients' perception vectors, summed over windows. Their cloud is found by classical
scaling. By clients, where there are too many for pairs: the path of each one, its own means window by window. Where no pair
has met, a client's mean stands in for every entry of its perception vector, and two vectors are as far apart as two means are;
so distances are those between paths, and classical scaling of them is the principal axes of the paths. Nothing grows with
the square of the clients then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.fedgwc_state import Cluster
from fedgwc.core import Floats, Ids
from fedgwc.perception import add_distances
from fedgwc.spectral import coordinates, principal_axes

PER_DIRECTION = 10  # clients there must be for every axis that is looked at
GROWN = 100.0  # times in one window, at most: of clients that were all in one place, nobody can say how far away a late one is
HELPING = 2  # axes of who helps whom, at most


def with_window(c: Cluster, views: Sequence[NDArray[Any]]) -> Cluster:
    """What was known before, and what a window's views [K, K] or [K] tell. Views over pairs, counts and distances are written to.

    Who is late is as far from the others as before, by pairs in proportion: in their middle it would leave a gap where it stood.
    """
    late = np.zeros(len(c.members), bool) if c.late is None else c.late > 0
    if not late.any():
        return _added(c, views)
    c.visits[late] = 0
    if c.distances is not None:
        c.visits[:, late] = 0
        D, there = c.distances, (~late).astype(c.distances.dtype)
        was, between = D[late], there @ D @ there
        c = _added(c, views)
        grown = (there @ D @ there) / between if between > 0 else 1.0
        was *= min(grown, GROWN)
        D[late], D[:, late] = was, was.T
        return c
    known = _added(c, views)
    if c.paths is not None and known.paths is not None:
        was = c.paths[:, -len(views) :]
        known.paths[late, -len(views) :] += was[late] - was[~late].mean(0)
    return known


def _added(c: Cluster, views: Sequence[NDArray[Any]]) -> Cluster:
    if c.by_pairs:
        distances = np.zeros_like(views[0]) if c.distances is None else c.distances
        return replace(c, distances=add_distances(distances, views, c.visits))
    before = [] if c.paths is None else [c.paths]
    return replace(c, paths=np.column_stack([*before, *(from_the_middle(v, c.visits > 0) for v in views)]))


def one_less(late: Ids | None) -> Ids | None:
    """When a window is over."""
    return None if late is None or late.max() <= 1 else np.maximum(late - 1, 0)


def from_the_middle(means: NDArray[Any], seen: NDArray[np.bool_]) -> NDArray[Any]:
    """Who was not there stands in the middle of the others: nothing is known of it."""
    return np.where(seen, means, means[seen].mean(0) if seen.any() else 0.0)


def among(c: Cluster, at: Ids) -> dict[str, Any]:
    """The same among some of the members, by name; empty before the first window is over."""
    if c.distances is not None:
        pairs = np.ix_(at, at)
        return {"distances": c.distances[pairs]} | ({} if c.echo is None else {"echo": c.echo[pairs]})
    return {} if c.paths is None else {"paths": c.paths[at]}


class Known(Protocol):
    """What is known of K clients, of the present or in a file."""

    @property
    def members(self) -> Ids: ...
    @property
    def distances(self) -> NDArray[Any] | None: ...
    @property
    def paths(self) -> NDArray[Any] | None: ...
    @property
    def echo(self) -> NDArray[Any] | None: ...


def places(known: Known, directions: int) -> tuple[int, Floats]:
    """How many axes tell who helps whom, and clients [K, m] in these and then in those of their cloud."""
    n, most = axes_of(len(known.members), directions)
    helping = helping_axes(known, most)
    return helping.shape[1], np.column_stack([helping, cloud(known, n)])


def axes_of(K: int, directions: int) -> tuple[int, int]:
    """Of the cloud and of who helps whom, one for every 10 clients each: in many dimensions any few points fall into groups.

    Two of the cloud at least, because the first may well show what sets every client apart, and the groups only beside it.
    """
    many = K // PER_DIRECTION
    return min(directions, max(2, many)), min(HELPING, max(1, many))


def cloud(known: Known, n: int) -> Floats:
    """The leading axes [K, m] of the clients' cloud, m at most n."""
    if known.distances is not None:
        return coordinates(known.distances, n)
    if known.paths is not None:
        return principal_axes(known.paths, n)
    raise ValueError("before the first window is over there is no cloud of clients")


def helping_axes(known: Known, n: int) -> Floats:
    """The leading axes [K, m] along which clients who help each other stand together, m at most n; 0 where that is not known.

    How much a client helps itself says nothing about company: the diagonal becomes what its row and its column, which say how
    much it gains from anybody and anybody from it, let expect.
    """
    if known.echo is None:
        return np.zeros((len(known.members), 0))
    apart = known.echo + known.echo.T
    np.negative(apart, out=apart)
    K = len(apart)
    np.fill_diagonal(apart, 0.0)
    rows = apart.sum(1, dtype=np.float64) / max(K - 2, 1)
    np.fill_diagonal(apart, 2 * rows - rows.sum() / max(K - 1, 1))  # exact where an entry is a sum of what either client brings
    return coordinates(apart, n)
