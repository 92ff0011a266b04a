"""Groups by evidence: proposed by where clients' updates point, decided on validation samples.

Of every visit, a sketch of the update is kept, less what all clients of the round had in common. Where clients lie in groups
rather than in one cloud, the cut goes on trial; it divides where its parts' models serve members better than the common one.
docs/algorithms/evidence.md says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from scipy.stats import binom
from torch import Tensor

from fedgwc.algorithms.aggregate import Server
from fedgwc.algorithms.evidence.cuts import MOST_CLIENTS, centres, nearest, tree_of_cuts
from fedgwc.algorithms.evidence.jury import Trial, ballots, has_validation, shares_better_served
from fedgwc.algorithms.evidence.state import EvidenceState, Gone, Group, spread_by_layer
from fedgwc.algorithms.evidence.views import directions, less_common
from fedgwc.algorithms.evidence.words import Decision, why_divided
from fedgwc.algorithms.groups import Groups, Parents, Plan, Round, plan_of
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Engine
from fedgwc.core.sampling import cohort_size, sample
from fedgwc.core.tensors import to_device
from fedgwc.core.types import Floats, Ids, Rng

FIRST_LOOK, AGAIN = 1.5, 1.5  # visits in the less seen half, on average over clients; and how many times as many next time
PREFERRED = 0.75  # share of two groups' members that prefer their own model; a merger needs proof that it is less
SETTLED = 3  # rounds that new groups train apart before their models are compared


@dataclass(frozen=True)
class Evidence(Groups[EvidenceState]):
    """Finds groups, their number included, by one test on updates and one on validation samples."""

    learns_from = "updates"

    sketch: Annotated[int, "numbers kept of each update and half; more of them blur differences less"] = 512
    min_size: Annotated[int, "smallest group"] = 3
    level: Annotated[
        float, "error of each test, of clouds at a look and of a jury's bets; squared, over all looks, where no jury decides"
    ] = 0.05

    def __post_init__(self) -> None:
        if self.sketch < 1 or self.min_size < 2 or not 0 < self.level < 1:
            got = f"{self.sketch}, {self.min_size} and {self.level}"
            raise InputError(f"evidence sketch must be >= 1, min_size >= 2 and level in (0, 1), got {got}")

    def init(self, model: Tensor, n_clients: int, rate: float) -> tuple[Sequence[Tensor], EvidenceState]:
        nobody = np.zeros((2, n_clients), np.int64)
        sums = np.zeros((2, n_clients, 0), np.float32)
        root = Group(0, None, 0, FIRST_LOOK)
        unasked = np.full((n_clients, 1), np.nan)
        return [model], EvidenceState((root,), nobody[0].copy(), sums, nobody, nobody[0].copy(), unasked)

    def plan(self, state: EvidenceState, servers: Sequence[Server], rate: float, engine: Engine, rng: Rng) -> Plan:
        members = [state.members(i) for i in range(len(state.groups))]
        drawn = [sample(m, cohort_size(len(m), rate), rng.generator(g.id)) for m, g in zip(members, state.groups, strict=True)]
        return plan_of(drawn, servers)

    def regroup(self, state: EvidenceState, round: Round) -> tuple[EvidenceState, Ids, Parents]:
        return state, round.groups_of(state.labels), None

    def divide(self, state: EvidenceState, round: Round, group: Ids) -> tuple[EvidenceState, Parents]:
        state = replace(state, decisions=(), maps={})
        if not len(round.updates):
            return state, None
        state = self._learnt(state, round, group)
        if state.validates and any(g.trial is not None for g in state.groups):
            state = self._heard(state, round, group)
        state = self._looked(state, round)
        parents = np.arange(len(state.groups))
        state, parents = self._divided(state, round, parents)
        if len(state.groups) > 1:
            state, parents = self._balloted(state, round, parents)
        return state, None if np.array_equal(parents, np.arange(len(round.plan.models))) else parents.tolist()

    def grow(self, state: EvidenceState, rows: Ids) -> tuple[EvidenceState, Parents]:
        n, nothing = len(rows), np.zeros((2, len(rows)), np.int64)
        groups = tuple(replace(g, trial=_grown(g.trial, n)) for g in state.groups)
        return replace(
            state,
            groups=groups,
            label=np.concatenate([state.label, rows]),
            sums=np.concatenate([state.sums, np.zeros((2, n, state.sums.shape[2]), np.float32)], 1),
            visits=np.concatenate([state.visits, nothing], 1),
            turns=np.concatenate([state.turns, nothing[0]]),
            ballots=np.concatenate([state.ballots, np.full((n, state.ballots.shape[1]), np.nan)]),
        ), None

    # What a round shows

    def _learnt(self, state: EvidenceState, round: Round, group: Ids) -> EvidenceState:
        """Add the round's visits to the half that it belongs to."""
        updates, start = round.updates, round.plan.models
        pulls = updates.parameters - start[to_device(start.device, group), : updates.n_params]
        seen = less_common(directions(pulls, state.blocks, self.sketch), group)
        if not state.sums.shape[2]:
            state = replace(state, sums=np.zeros((*state.visits.shape, seen.shape[1]), np.float32))
        half, shown = round.rng.round % 2, np.bincount(group)[group] > 1
        state.sums[half, updates.clients] += seen
        state.visits[half, updates.clients[shown]] += 1
        state.turns[updates.clients] += 1
        return state

    # A trial

    def _heard(self, state: EvidenceState, round: Round, group: Ids) -> EvidenceState:
        """Let the round's jurors decide on cuts that are on trial."""
        groups, updates = list(state.groups), round.updates
        for i, g in enumerate(groups):
            rows = np.flatnonzero(group == i)
            if g.trial is None or not len(rows):
                continue
            at = to_device(updates.models.device, rows)
            there = updates.clients[rows], updates.models[at], round.weights[rows]
            shares = shares_better_served(g.trial, *there, round.engine, round.rng.generator(g.id, 1))
            trial = g.trial.after(shares)
            against = trial.won()[:, 1]
            if against.max() >= -np.log(self.level):  # a part that its own members do better without
                trial_or_none = self._without(state, i, trial, int(against.argmax()))
                groups[i] = replace(g, trial=trial_or_none)
            else:
                groups[i] = replace(g, trial=trial)
        return replace(state, groups=tuple(groups))

    def _without(self, state: EvidenceState, i: int, trial: Trial, part: int) -> Trial | None:
        """Give a part back to its neighbour; None: nothing is left of the cut."""
        if len(trial.partner) == 2:
            return None
        labels = np.where(trial.labels == part, trial.partner[part], trial.labels)
        labels = np.where(labels > part, labels - 1, labels)
        return self._trial(state, i, labels, np.delete(trial.chances, part))

    def _trial(self, state: EvidenceState, i: int, labels: Ids, chances: Floats) -> Trial:
        seen = state.seen_in_both(i)
        seen = seen[labels[seen] >= 0]
        middle = centres(state.known(seen).means.mean(0), labels[seen])
        apart = ((middle[:, None] - middle) ** 2).sum(-1)
        np.fill_diagonal(apart, np.inf)
        return Trial.of(labels, apart.argmin(1), chances)

    # A look

    def _looked(self, state: EvidenceState, round: Round) -> EvidenceState:
        """Look at groups of which half as much again is known as at the last look."""
        groups = list(state.groups)
        for i, g in enumerate(groups):
            members = state.members(i)
            evidence = float(state.visits[:, members].min(0).mean())
            if evidence >= g.next_look and len(members) >= 2 * self.min_size:
                groups[i] = self._look(state, i, round, evidence)
        validates = state.validates
        if validates is None and any(g.trial is not None for g in groups):
            validates = has_validation(round.engine, round.plan.models[0], int(round.updates.clients[0]))
        return replace(state, groups=tuple(groups), validates=validates)

    def _look(self, state: EvidenceState, i: int, round: Round, evidence: float) -> Group:
        g = state.groups[i]
        g = replace(g, looks=g.looks + 1, next_look=AGAIN * evidence)
        seen = state.seen_in_both(i)
        if len(seen) > MOST_CLIENTS:
            seen = np.sort(seen[np.argsort(-state.visits[:, seen].min(0), kind="stable")[:MOST_CLIENTS]])
        known = state.known(seen)
        found, chances = tree_of_cuts(known, self.min_size, self.level, round.rng.generator(g.id, 2))
        if not found.any():  # a trial that its jury favours goes on
            return replace(g, trial=g.trial if g.trial is not None and g.trial.won()[:, 0].min() > 0 else None)
        labels = np.full(len(state.label), -1, np.int64)
        labels[seen] = found
        labels = placed(state, i, labels)
        trial = self._trial(state, i, labels, chances)
        if g.trial is not None and len(g.trial.partner) == len(chances):  # that no such cut pays is what bets are against
            trial = replace(trial, stakes=g.trial.stakes, rounds=g.trial.rounds)
        return replace(g, trial=trial)

    # A decision

    def _divided(self, state: EvidenceState, round: Round, parents: Ids) -> tuple[EvidenceState, Ids]:
        """Divide groups whose cut has won its trial."""
        for g in state.groups:
            i = int(np.flatnonzero(state.numbers() == g.id)[0])
            if g.trial is None or not self._wins(state, i, g.trial):
                continue
            state, parents = self._cut(state, i, g.trial, round, parents)
        return state, parents

    def _wins(self, state: EvidenceState, i: int, trial: Trial) -> bool:
        """Tell whether each part is sure enough: by its jury, or by so small a chance that no jury is needed."""
        proven = trial.won()[:, 0] >= -np.log(self.level * float((state.label == i).mean()))
        return bool((proven | (trial.chances <= self._sure(state, i, state.groups[i].looks))).all())

    def _sure(self, state: EvidenceState, i: int, look: int) -> float:
        """Return the chance at which no jury is needed: over all looks and groups, no more than `level` squared."""
        return self.level**2 * float((state.label == i).mean()) / (look * (look + 1))

    def _cut(self, state: EvidenceState, i: int, trial: Trial, round: Round, parents: Ids) -> tuple[EvidenceState, Ids]:
        old, members = state.groups[i], state.members(i)
        labels = placed(state, i, trial.labels)
        sizes = np.bincount(labels[members][labels[members] >= 0])
        labels = np.where(labels < 0, sizes.argmax(), labels)  # who was never seen goes to the largest part
        seen = state.seen_in_both(i)
        layers = spread_by_layer(state.known(seen), labels[seen], len(state.blocks.names))
        born = [Group(state.n_born + j, old.id, round.rng.round, FIRST_LOOK) for j in range(len(sizes))]
        label = np.where(state.label > i, state.label - 1, state.label)
        label[members] = len(state.groups) - 1 + labels[members]
        groups = (*state.groups[:i], *state.groups[i + 1 :], *born)
        parents = np.concatenate([np.delete(parents, i), np.full(len(sizes), parents[i])])
        parts = [members[labels[members] == j] for j in range(len(sizes))]
        told = dict(zip(state.blocks.names, layers.tolist(), strict=True))
        chance, visits = float(trial.chances.max()), int(np.median(state.visits[:, seen].sum(0)))
        why = why_divided(parts, told, chance, visits, trial.rounds)
        about = Decision(old.id, True, why, tuple(map(len, parts)), chance, trial.rounds, told)
        maps = {**state.maps, str(old.id): state.map_of(members, labels[members])}
        # Parts train apart from now on: what was seen from the common model is no evidence about them.
        state.sums[:, members], state.visits[:, members], state.turns[members] = 0, 0, 0
        gone = (*state.gone, Gone(old.id, old.parent, old.born, round.rng.round, members))
        unasked = np.full((len(label), len(groups)), np.nan)
        return replace(
            state,
            groups=groups,
            label=label,
            ballots=unasked,
            gone=gone,
            n_born=state.n_born + len(sizes),
            decisions=(*state.decisions, about),
            maps=maps,
        ), parents

    # Afterwards

    def _balloted(self, state: EvidenceState, round: Round, parents: Ids) -> tuple[EvidenceState, Ids]:
        """Ask clients now and then which group's model suits them; move them, and merge groups that suit all alike."""
        clients = round.updates.clients
        age = round.rng.round - np.array([g.born for g in state.groups])
        turns = state.turns[clients]
        due = clients[(turns > 0) & (turns & (turns - 1) == 0) & (age.min() >= SETTLED)]
        if not len(due):
            return state, parents
        models = round.plan.models
        who, likelihood = ballots(due, models, round.engine, "validation" if state.validates else "train")
        state.ballots[who] = likelihood
        own, best = likelihood[np.arange(len(who)), state.label[who]], likelihood.argmax(1)
        moving = likelihood.max(1) - own > -np.log(self.level)
        moved, to = who[moving], best[moving]
        state.label[moved] = to
        state.sums[:, moved], state.visits[:, moved], state.turns[moved] = 0, 0, 0
        groups = tuple(replace(g, trial=_left(g.trial, moved)) for g in state.groups)
        state = replace(state, groups=groups)
        return self._merged(state, round, parents)

    def _merged(self, state: EvidenceState, round: Round, parents: Ids) -> tuple[EvidenceState, Ids]:
        """Merge the first pair of groups whose members do not prefer their own model, and drop empty groups."""
        sizes = np.bincount(state.label, minlength=len(state.groups))
        pair = next(((0 if i else 1, i) for i in np.flatnonzero(sizes == 0).tolist()), None) or self._alike(state, sizes)
        if pair is None:
            return state, parents
        stays, goes = sorted(pair, key=lambda i: -sizes[i])
        old, members = state.groups[goes], state.members(goes)
        label = np.where(state.label == goes, stays, state.label)
        label = np.where(label > goes, label - 1, label)
        groups = list(state.groups)
        groups[stays] = replace(groups[stays], trial=None)
        del groups[goes]
        gone = state.gone
        if len(members):
            gone = (*gone, Gone(old.id, old.parent, old.born, round.rng.round, members))
        kept = int(state.groups[stays].id)
        why = f"{len(members)} clients of group {old.id} go back to group {kept}: either model suits the members of both alike"
        about = Decision(old.id, False, why)
        state = replace(
            state,
            groups=tuple(groups),
            label=label,
            ballots=np.delete(state.ballots, goes, 1),
            gone=gone,
            decisions=(*state.decisions, about),
        )
        return state, np.delete(parents, goes)

    def _alike(self, state: EvidenceState, sizes: Ids) -> tuple[int, int] | None:
        """Find two groups with most members asked, of whom clearly less than `PREFERRED` prefer their own model."""
        for a in range(len(sizes)):
            for b in range(a + 1, len(sizes)):
                gains = [state.ballots[state.label == i, i] - state.ballots[state.label == i, j] for i, j in ((a, b), (b, a))]
                asked = [gain[~np.isnan(gain)] for gain in gains]
                if any(2 * len(x) <= n for x, n in zip(asked, (sizes[a], sizes[b]), strict=True)):
                    continue
                both = np.concatenate(asked)
                if binom.cdf(int((both > 0).sum()), len(both), PREFERRED) <= self.level:
                    return a, b
        return None


def placed(state: EvidenceState, i: int, labels: Ids) -> Ids:
    """Place members that a cut does not name, as far as they were seen, in the nearest part."""
    members = state.members(i)
    rest = members[(labels[members] < 0) & (state.visits[:, members].sum(0) > 0)]
    named = state.seen_in_both(i)
    named = named[labels[named] >= 0]
    if not len(rest) or not len(named):
        return labels
    labels = labels.copy()
    means = state.sums[:, rest].sum(0) / state.visits[:, rest].sum(0)[:, None]
    labels[rest] = nearest(means, centres(state.known(named).means.mean(0), labels[named]))
    return labels


def _grown(trial: Trial | None, n: int) -> Trial | None:
    return None if trial is None else replace(trial, labels=np.concatenate([trial.labels, np.full(n, -1, np.int64)]))


def _left(trial: Trial | None, moved: Ids) -> Trial | None:
    if trial is None or not len(moved):
        return trial
    labels = trial.labels.copy()
    labels[moved] = -1
    return replace(trial, labels=labels)
