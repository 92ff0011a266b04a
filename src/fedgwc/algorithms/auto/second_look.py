"""Trial of a division into groups.

Some clients sit out until the two models differ, then tell which one serves them.

A cut is made from losses under one shared model. It may put a few clients on the wrong side, mostly those nearest to it, and
there may be no groups at all. Once the two models differ, a client's losses under both show where it belongs, provided that it
has trained neither of them since: whoever trains a model makes it its own. So the clients nearest to the cut sit out for a
while, and with them typical clients of both sides, the witnesses, who show what is usual there. Misplaced clients change sides.
If neither side is served better by its own model, the division is undone. Those who sat out are late afterwards: they are not
compared with others until they have caught up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.auto.beginnings import fresh, with_cut
from fedgwc.algorithms.auto.cuts import Cut
from fedgwc.algorithms.auto.learning import how_many
from fedgwc.algorithms.auto.membership import with_members
from fedgwc.algorithms.auto.proposals import proposed
from fedgwc.algorithms.auto.settings import Settings
from fedgwc.algorithms.auto.state import Cluster, Split, Verdict
from fedgwc.algorithms.auto.verdicts import NO_ONE_WAITS, NOBODY, Waiting
from fedgwc.core.protocols import Engine, losses_under
from fedgwc.core.tensors import stack_rows
from fedgwc.core.types import Floats, Ids, TooFewReplies

SMALLEST = 9  # if a side has fewer clients, nobody sits out: too few would be left to train
MANY = 15  # if a side has fewer clients, too few sit out to undo a division reliably
NEAR = 0.25  # at most this share of a side sits out as uncertain
UNSURE = 0.8  # uncertain: closer to the midpoint of the sides than 0.8 of their median member's distance
WITNESSES = 7  # clients nearest to their side's median who sit out too, at most a third of the side
TOO_FEW_ANSWERS = 3  # if fewer witnesses of a side answer, nobody can tell what is usual there
EVERY = 10  # ask those who sit out whenever the others have trained this many more times ...
CLEAR = 5.0  # ... until the two sides are this many deviations apart ...
LONGEST = 40  # ... or the others have trained this often
FAINT = 2.0  # undo below this separation, in deviations; the limit rises linearly from 0 at the first question to 2 at the last
SELDOM = 0.1  # prior probability that a client who sits out is misplaced
OUTLIER = 5.0  # nobody counts as farther from what is usual than this many times the median client
LATE = 3  # windows for which those who sat out are late: the one in which they did, and two more


def who_waits(cut: Cut) -> Waiting:
    """Choose the clients that sit out.

    Uncertain clients near the other side of a cut, and witnesses. Nobody if a side is too small.
    """
    sides = [np.flatnonzero(cut.labels == y) for y in (0, 1)]
    if min(map(len, sides)) < SMALLEST:
        return NO_ONE_WAITS
    medians = [np.median(cut.on_line[side]) for side in sides]
    away = abs(cut.on_line - np.mean(medians)) / max(float(medians[1] - medians[0]) / 2, 1e-12)  # 0: midpoint, 1: median
    away[(cut.on_line > np.mean(medians)) != (cut.labels == 1)] = 0.0  # on the wrong side of the midpoint
    unsure = [_smallest(away, side[away[side] < UNSURE], int(NEAR * len(side))) for side in sides]
    others = [np.setdiff1d(side, some) for side, some in zip(sides, unsure, strict=True)]
    most = [min(len(side) // 3, WITNESSES) for side in sides]
    witnesses = [_smallest(np.abs(away - 1), some, n) for some, n in zip(others, most, strict=True)]
    return Waiting(np.sort(np.concatenate([*unsure, *witnesses])), np.sort(np.concatenate(witnesses)))


def is_tried(cut: Cut | None, waiting: Waiting) -> bool:
    """Tell whether enough clients sit out to undo a wrong division."""
    return cut is not None and len(waiting.clients) > 0 and bool(np.bincount(cut.labels).min() >= MANY)


def _smallest(of: NDArray[Any], some: Ids, n: int) -> Ids:
    """The n of `some` with the smallest values."""
    return some[np.argsort(of[some], kind="stable")][:n]


def resolve_trials(
    a: Settings, clusters: Sequence[Cluster], splits: Sequence[Split], engine: Engine, number: int
) -> tuple[list[Cluster], list[Split], list[Verdict]]:
    """End trials after round `number`.

    Returns clusters, splits and verdicts: where a trial ends, clients have moved or the division is undone.
    """
    after: dict[int, Cluster] = {c.id: c for c in clusters}
    inner: dict[int, Split] = {s.id: s for s in splits}
    verdicts: list[Verdict] = []
    for sides in combinations([c for c in clusters if c.waiting is not None], 2):
        if sides[0].parent is None or sides[0].parent != sides[1].parent:
            continue
        trained, by_then = (min(_trainings(a, c, n) for c in sides) for n in (number - 1, number))
        if by_then < LONGEST and by_then // EVERY == trained // EVERY:
            continue
        members, told, clear = _reassigned(a, sides, engine)
        too_faint = FAINT * min((by_then // EVERY - 1) / (LONGEST // EVERY - 1), 1.0)
        if by_then < LONGEST and (clear is None or too_faint <= clear < CLEAR):
            continue
        if clear is not None and clear < too_faint:
            whole = _rejoined(a, sides, inner.pop(sides[0].parent), engine)
            del after[sides[0].id], after[sides[1].id]
            after[whole.id] = whole
            sizes = tuple(len(c.members) for c in sides)
            verdicts.append(Verdict(whole.id, len(whole.members), "rejoined", sizes=sizes, clear=clear))
            continue
        for c, m in zip(sides, members, strict=True):
            after[c.id] = _after_trial(a, c, m, _clients("waiting", sides))
        verdicts += told
    return list(after.values()), list(inner.values()), verdicts


def _rejoined(a: Settings, sides: tuple[Cluster, Cluster], before: Split, engine: Engine) -> Cluster:
    """The cluster before the division, with the best model there is. Of its history it keeps only whether clients differed."""
    members = np.sort(np.concatenate([c.members for c in sides]))
    share = [len(c.members) / len(members) for c in sides]
    larger = sides[0] if share[0] >= share[1] else sides[1]
    mean = replace(larger.server, theta=share[0] * sides[0].server.theta + share[1] * sides[1].server.theta)
    server = _best_server([mean, *(c.server for c in sides)], _clients("waiting", sides), engine)
    c = fresh(a, before.id, before.parent, before.born, members, server, before.scores, sides[0].by_pairs)
    return replace(c, undone=before.undone + 1, differed=before.differed, late=np.full(len(members), LATE))


def _best_server(servers: list[Server], asked: Ids, engine: Engine) -> Server:
    """The server with the lowest median loss, as one side's model may have been ruined. The first server if too few answer."""
    try:
        _, losses = losses_under(stack_rows([s.theta for s in servers]), asked, engine)
    except TooFewReplies:
        return servers[0]
    return servers[int(np.median(np.where(np.isfinite(losses), losses, np.inf), 0).argmin())]


def _trainings(a: Settings, c: Cluster, number: int) -> float:
    """Return expected trainings per member that does not sit out.

    By round `number`: so the wait ends even if nobody answers.
    """
    there = len(c.members) - len(_clients("waiting", [c]))
    return (number - c.born) * a.cohort_of(there) / there


def _clients(which: Literal["waiting", "witnesses"], sides: Sequence[Cluster]) -> Ids:
    return np.concatenate([NOBODY, *(some for c in sides if (some := getattr(c, which)) is not None)])


def _reassigned(a: Settings, sides: tuple[Cluster, Cluster], engine: Engine) -> tuple[list[Ids], list[Verdict], float | None]:
    """Move misplaced clients to the other side.

    Returns the members of both sides, verdicts, and deviations between the sides or None if unknown.
    """
    asked, stay = _clients("waiting", sides), [c.members for c in sides]
    try:
        clients, losses = losses_under(stack_rows([c.server.theta for c in sides]), asked, engine)
    except TooFewReplies:
        return stay, [], None
    known = np.isin(clients, asked) & np.isfinite(losses).all(1)  # stand-ins do not count: they have trained a model
    clients = clients[known]
    side = np.isin(clients, sides[1].members).astype(np.int64)
    served, clear = better_served(side, losses[known], np.isin(clients, _clients("witnesses", sides)))
    if clear is None:
        return stay, [], None
    gone = [clients[(side == y) & (served != y)] for y in (0, 1)]
    members = [np.union1d(np.setdiff1d(stay[y], gone[y]), gone[1 - y]) for y in (0, 1)]
    if min(map(len, members)) < a.min_size:
        members, gone = stay, [NOBODY, NOBODY]
    told = [
        Verdict(
            c.id, len(c.members), "moved", sizes=(len(c.members) - len(gone[y]), len(gone[y])), to=sides[1 - y].id, clear=clear
        )
        for y, c in enumerate(sides)
        if len(gone[y])
    ]
    stayed = Verdict(sides[0].id, len(stay[0]), "confirmed", sizes=(len(stay[0]),), to=sides[1].id, clear=clear)
    return members, told or [stayed], clear


def better_served(side: Ids, losses: Floats, witness: NDArray[np.bool_]) -> tuple[Ids, float | None]:
    """Return each client's probable side [n], 0 or 1.

    And the deviations between the two sides, or None if too few answered.

    `side` [n] is where clients are now, `losses` [n, 2] are theirs under either model. The larger side's model may be better for
    everybody. So what counts is not which loss is lower but by how much, compared with what is usual on either side. First the
    witnesses show what is usual; then all clients do, each on the side where it seems to belong by then.
    """
    if min((side[witness] == y).sum() for y in (0, 1)) < TOO_FEW_ANSWERS:
        return side, None
    more = losses[:, 0] - losses[:, 1]
    by_witnesses = _usual(more[witness], side[witness])
    placed = np.where(witness, side, by_witnesses.belongs(more, side))
    usual = _usual(more, placed)
    return usual.belongs(more, side), usual.clear


@dataclass(frozen=True)
class Usual:
    """Usual loss differences between the two models, a normal per side.

    The two normals have equal deviation.
    """

    first: float  # median of the first side
    gap: float  # from there to the median of the second side
    clear: float  # the gap in deviations

    def belongs(self, more: Floats, side: Ids) -> Ids:
        """Return the side of each client [n].

        The other one only if that outweighs that few are misplaced (`SELDOM`).
        """
        if self.clear <= 0:
            return side
        place = (more - self.first) / self.gap
        towards_other = np.where(side == 0, place, 1 - place)  # 0: as usual on its own side, 1: as usual on the other
        odds = self.clear**2 * (towards_other - 0.5)  # logarithm of the likelihood ratio, other side to own
        return np.where(odds > np.log((1 - SELDOM) / SELDOM), 1 - side, side)


def _usual(more: Floats, side: Ids) -> Usual:
    middle = np.array([np.median(more[side == y]) for y in (0, 1)])
    gap = float(middle[1] - middle[0])
    if gap < 1e-12:
        return Usual(float(middle[0]), 0.0, 0.0)
    off = abs(more - middle[side])
    off = np.minimum(off, OUTLIER * np.median(off))  # an outlier or liar must not hide what the others show
    deviation = float((off**2).sum() / (len(off) - 2)) ** 0.5
    return Usual(float(middle[0]), gap, gap / max(deviation, 1e-3 * gap))


def _after_trial(a: Settings, c: Cluster, members: Ids, waited: Ids) -> Cluster:
    """A side after its trial, with these members: nobody sits out any more. If they have changed, so has its proposed cut."""
    same, c = np.array_equal(members, c.members), replace(with_members(c, members), waiting=None, witnesses=None)
    if not a.is_divisible(len(members)):
        return replace(c, late=None)  # too few for windows, so nobody has to catch up
    late = np.where(np.isin(members, waited), LATE, 0)
    level = None if c.level is None else np.where(late > 0, np.nan, c.level)  # their usual loss is outdated
    c = replace(c, level=level, late=late if c.late is None else np.maximum(late, c.late))
    if same:
        return c
    ripe = how_many(c.visits >= a.visits_wanted(c.by_pairs))
    return with_cut(replace(c, ripe=ripe), proposed(a, c)[0])
