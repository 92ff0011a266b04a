"""Malicious clients, for every algorithm alike: an engine whose clients lie, and data whose labels do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedgwc.core.protocols import Engine
from fedgwc.core.types import Ids, Scores, Split, Updates
from fedgwc.core.work import Work
from fedgwc.data.federation import Federation


@dataclass(frozen=True)
class Attack:
    """What the malicious clients do; the defaults are honest."""

    flip_labels: bool = False  # class c is taught as C - 1 - c
    scale: float = 1.0  # of the step they send; below 0 it leads back
    losses: Literal["true", "zero", "tenfold", "typical"] = "true"  # typical: the mean of the honest ones in their cohort
    samples: int = 1  # times the true count
    together: bool = False  # all send the mean of their steps


class Malicious:
    """Passes everything on to `engine`, and spoils what `attackers` answer."""

    def __init__(self, engine: Engine, attackers: Ids, attack: Attack) -> None:
        self.engine, self.attackers, self.attack = engine, attackers, attack

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        updates = self.engine.train(clients, models, which, seed, work)
        lying = torch.from_numpy(np.isin(updates.clients, self.attackers))  # [n]
        if not lying.any():
            return updates
        asked = dict(zip(clients.tolist(), which.tolist(), strict=True))
        rows = torch.tensor([asked[k] for k in updates.clients.tolist()])  # the model each started from
        spoiled = replace(
            updates,
            models=self._steps(updates.models, models, rows, lying),
            losses=self._losses(updates.losses, rows, lying),
            sizes=torch.where(lying, updates.sizes * self.attack.samples, updates.sizes),
        )
        # Like every engine: who sends something that is not finite is a missing row.
        usable = torch.isfinite(spoiled.models.sum(1)) & ~torch.isinf(spoiled.losses).any(1)
        return spoiled.rows(usable.nonzero()[:, 0].numpy())

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        return self.engine.evaluate(clients, models, which, split)

    def _steps(self, trained: Tensor, models: Tensor, rows: Tensor, lying: Tensor) -> Tensor:
        steps = trained - models[rows]
        out = trained.clone()
        for row in rows[lying].unique():
            mine = lying & (rows == row)
            sent = steps[mine].mean(0, keepdim=True).expand_as(steps[mine]) if self.attack.together else steps[mine]
            out[mine] = models[row] + self.attack.scale * sent
        return out

    def _losses(self, losses: Tensor, rows: Tensor, lying: Tensor) -> Tensor:
        out = losses.clone()
        if self.attack.losses == "zero":
            out[lying] = 0.0
        elif self.attack.losses == "tenfold":
            out[lying] *= 10
        elif self.attack.losses == "typical":
            for row in rows[lying].unique():
                honest = ~lying & (rows == row)
                if honest.any():
                    out[lying & (rows == row)] = losses[honest].mean(0)
        return out


def poisoned(federation: Federation, attackers: Ids, attack: Attack) -> Federation:
    """The federation after `attackers` have changed what they hold."""
    if not attack.flip_labels:
        return federation
    y = federation.y.clone()
    rows = torch.from_numpy(np.concatenate([federation.train[k] for k in attackers]))
    y[rows] = federation.n_classes - 1 - y[rows]
    return replace(federation, y=y)
