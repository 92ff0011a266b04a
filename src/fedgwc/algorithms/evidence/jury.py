"""The jury: whether a cut's models serve clients better on validation samples, round by round.

Nothing is divided for it. The answers of one round are averaged twice, within each part and within the part and its neighbour
together, and members of the part compare both. A juror's own answer is in neither, so it cannot favour its own company.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Engine
from fedgwc.core.tensors import to_device
from fedgwc.core.types import Floats, Ids, Split

JURORS = 8  # of a part and a round, drawn anew
BETS = np.array([0.2, 0.5, 0.9])  # shares of the stake; the average of all three is as good as the best, but for log 3


@dataclass(frozen=True)
class Trial:
    """A cut on trial: bets on and against every part."""

    labels: Ids  # [N] part of each client; -1: of another group, or not seen yet
    partner: Ids  # [k] the part it is compared with
    stakes: Floats  # [k, 2, 3] logs of what was won, betting for the part and against it
    chances: Floats  # [k] of the cut that made each part, without groups
    rounds: int = 0

    @classmethod
    def of(cls, labels: Ids, partner: Ids, chances: Floats) -> Trial:
        return cls(labels, partner, np.zeros((len(partner), 2, len(BETS))), chances)

    def won(self) -> Floats:
        """Return logs of the average stakes [k, 2]."""
        return np.asarray(np.logaddexp.reduce(self.stakes, axis=2) - np.log(len(BETS)))

    def after(self, shares: Floats) -> Trial:
        """Bet on who is served better.

        `shares` [k] are of the jurors served better, less those served worse; NaN: no juror answered.
        """
        heard = np.nan_to_num(shares)[:, None, None] * np.array([1.0, -1.0])[:, None]
        return replace(self, stakes=self.stakes + np.log1p(BETS * heard), rounds=self.rounds + 1)


def shares_better_served(
    trial: Trial, clients: Ids, models: Tensor, weights: Floats, engine: Engine, rng: np.random.Generator
) -> Floats:
    """Ask jurors: of each part [k], the share served better less that served worse.

    clients [n] answered with models [n, D], which count by weights [n].
    """
    k, part = len(trial.partner), trial.labels[clients]
    jurors = np.concatenate([_drawn(np.flatnonzero(trial.labels == j), rng) for j in range(k)])
    own = trial.labels[jurors]
    others = weights * (clients != jurors[:, None])  # [q, n]
    alone = others * (part == own[:, None])
    both = others * ((part == own[:, None]) | (part == trial.partner[own][:, None]))
    fits = (alone.sum(1) > 0) & (both.sum(1) > alone.sum(1))
    if not fits.any():
        return np.full(k, np.nan)
    mixtures = np.concatenate([both[fits], alone[fits]])
    mixtures, which = np.unique(mixtures / mixtures.sum(1, keepdims=True), axis=0, return_inverse=True)
    mixed = to_device(models.device, mixtures).to(models.dtype) @ models
    asked = np.tile(jurors[fits], 2)
    who, losses, _ = _scored(asked, mixed, which.reshape(-1), engine, "validation", 2)
    better = np.sign(losses[:, 0] - losses[:, 1])
    part = trial.labels[who]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.bincount(part, better, k) / np.bincount(part, minlength=k))


def ballots(clients: Ids, models: Tensor, engine: Engine, split: Split) -> tuple[Ids, Floats]:
    """Ask clients for the log likelihood of their samples under every model: who answered, [n, M]."""
    M = len(models)
    who, losses, sizes = _scored(np.tile(clients, M), models, np.repeat(np.arange(M), len(clients)), engine, split, M)
    return who, -losses * sizes


def has_validation(engine: Engine, model: Tensor, client: int) -> bool:
    """Find out whether clients hold validation samples."""
    try:
        engine.evaluate(np.array([client]), model[None], np.zeros(1, np.int64), "validation")
    except InputError:
        return False
    return True


def _drawn(members: Ids, rng: np.random.Generator) -> Ids:
    return np.sort(rng.choice(members, JURORS, replace=False)) if len(members) > JURORS else members


def _scored(clients: Ids, models: Tensor, which: Ids, engine: Engine, split: Split, times: int) -> tuple[Ids, Floats, Floats]:
    """Evaluate: who answered all `times` questions [n], the losses [n, times], and samples [n, times]."""
    scores = engine.evaluate(clients, models, which, split)
    who, answers = np.unique(scores.clients, return_counts=True)
    who = who[answers == times]
    order = np.argsort(scores.clients, kind="stable")
    order = order[np.isin(scores.clients[order], who)]
    losses = np.nan_to_num(scores.loss[order], nan=np.inf).clip(-1e9, 1e9)
    return who, losses.reshape(-1, times), scores.total.sum(1)[order].reshape(-1, times)
