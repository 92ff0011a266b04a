"""Statistics over windows, and the positions of clients that follow.

By pairs: squared distances between clients' perception vectors, summed over windows. Classical scaling turns them into a cloud.
By client, if there are too many for pairs: each client's path, which is its own mean in every window. Where no pair has met, a
client's mean stands in for every entry of its perception vector, so two vectors are as far apart as two means. Distances are then
those between paths, and classical scaling of them gives the principal axes of the paths: nothing grows with the square of the
number of clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.auto.state import Cluster
from fedgwc.algorithms.perception import add_distances
from fedgwc.algorithms.spectral import coordinates, principal_axes
from fedgwc.core.types import Floats, Ids

PER_DIRECTION = 10  # clients required for every axis that is looked at
# Late members' distances grow in one window as the others' do, by this factor at most: it explodes if those were close to 0.
GROWN = 100.0
HELPING = 2  # most axes of echoes (who helps whom)


def with_window(c: Cluster, views: Sequence[NDArray[Any]]) -> Cluster:
    """Add a window to a cluster.

    Its views are [K, K] or [K]. By pairs it writes into views, counts and distances.

    Late members stay as far from the others as before; by pairs, their distances grow by the same factor as the others'.
    Placed in the middle of the others, they would leave a gap where they stood.
    """
    late = np.zeros(len(c.members), bool) if c.late is None else c.late > 0
    if not late.any():
        return _with_views(c, views)
    c.visits[late] = 0
    if c.distances is not None:
        c.visits[:, late] = 0
        D, there = c.distances, (~late).astype(c.distances.dtype)
        was, between = D[late], there @ D @ there
        c = _with_views(c, views)
        grown = (there @ D @ there) / between if between > 0 else 1.0
        was *= min(grown, GROWN)
        D[late], D[:, late] = was, was.T
        return c
    known = _with_views(c, views)
    if c.paths is not None and known.paths is not None:
        was = c.paths[:, -len(views) :]
        known.paths[late, -len(views) :] += was[late] - was[~late].mean(0)
    return known


def _with_views(c: Cluster, views: Sequence[NDArray[Any]]) -> Cluster:
    if c.by_pairs:
        distances = np.zeros_like(views[0]) if c.distances is None else c.distances
        return replace(c, distances=add_distances(distances, views, c.visits))
    before = [] if c.paths is None else [c.paths]
    return replace(c, paths=np.column_stack([*before, *(mean_if_unseen(v, c.visits > 0) for v in views)]))


def counted_down(late: Ids | None) -> Ids | None:
    """`late` after the end of a window: one less for everybody, None if nobody is late any more."""
    return None if late is None or late.max() <= 1 else np.maximum(late - 1, 0)


def mean_if_unseen(means: NDArray[Any], seen: NDArray[np.bool_]) -> NDArray[Any]:
    """Fill in the means [K] of clients that were not seen.

    They get the mean of the others, as nothing is known of them.
    """
    return np.where(seen, means, means[seen].mean(0) if seen.any() else 0.0)


def submatrices(c: Cluster, at: Ids) -> dict[str, Any]:
    """Return distances and echoes, or paths, of some members, by name.

    Empty before the first window has ended.
    """
    if c.distances is not None:
        pairs = np.ix_(at, at)
        return {"distances": c.distances[pairs]} | ({} if c.echo is None else {"echo": c.echo[pairs]})
    return {} if c.paths is None else {"paths": c.paths[at]}


class Known(Protocol):
    """Statistics of K clients: a cluster, or a record in a file."""

    @property
    def members(self) -> Ids: ...
    @property
    def distances(self) -> NDArray[Any] | None: ...
    @property
    def paths(self) -> NDArray[Any] | None: ...
    @property
    def echo(self) -> NDArray[Any] | None: ...


def places(known: Known, directions: int) -> tuple[int, Floats]:
    """Return the clients' positions [K, m] and the number of echo axes.

    (Number of axes of echoes, positions along these and then along the axes of their cloud.)
    """
    n, most = axes_of(len(known.members), directions)
    helping = helping_axes(known, most)
    return helping.shape[1], np.column_stack([helping, cloud(known, n)])


def axes_of(K: int, directions: int) -> tuple[int, int]:
    """Return the numbers of axes of the cloud and of echoes.

    One per 10 clients, because in many dimensions any few points fall into groups.

    At least two of the cloud, because the first may show a difference without groups, and only the second shows the groups.
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
    """Return the leading axes of echoes [K, m].

    Clients who help each other are close along them; m at most n, 0 without echoes.

    How much a client helps itself says nothing about others. So the diagonal is replaced by what row and column lead to expect:
    how much the client gains from anybody, and anybody from it.
    """
    if known.echo is None:
        return np.zeros((len(known.members), 0))
    apart = known.echo + known.echo.T
    np.negative(apart, out=apart)
    K = len(apart)
    np.fill_diagonal(apart, 0.0)
    rows = apart.sum(1, dtype=np.float64) / max(K - 2, 1)
    np.fill_diagonal(apart, 2 * rows - rows.sum() / max(K - 1, 1))  # exact if every entry is a sum of two clients' parts
    return coordinates(apart, n)
