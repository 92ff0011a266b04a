"""Measurement of an engine's costs, reports and failures."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.core.protocols import CountsCosts, Engine
from fedgwc.core.types import Costs, Ids, Scores, Split, Updates
from fedgwc.core.work import LocalTraining, Work


@dataclass(frozen=True)
class Reported:
    """A training call's results, for the trace."""

    clients: Ids  # [n] those who answered
    which: Ids  # [n] the model each started from
    losses: NDArray[np.floating]  # [n, S]
    rewards: NDArray[np.floating] | None = None  # [n], where losses are private
    readings: NDArray[np.floating] | None = None  # [n, 4] of each row's cohort, likewise


class Meter:
    """An engine that counts another engine's costs and failures.

    `reported` and `new_failures` hold the calls since `clear`.

    Costs are the engine's own counts where it has some, else those of whole models and their losses, also where a round moves
    only parts of them. Samples are counted where the clients' training (`local`) is known. A failure is a model or loss that was
    not finite, or a node that was gone.
    """

    def __init__(self, engine: Engine, n_clients: int, local: LocalTraining | None = None) -> None:
        self.engine, self.local = engine, local
        self.costs = Costs()
        self._counter = engine if isinstance(engine, CountsCosts) else None
        self._counted = self._counter.costs if self._counter else Costs()  # by the engine, and contained in `costs`
        self.reported: list[Reported] = []
        self.failures: Ids = np.zeros(n_clients, np.int64)  # [N] how often each client was asked in vain
        self.new_failures: list[int] = []  # clients that failed for the first time
        self.seconds = 0.0  # spent inside the engine; what is left of a round is the server's own work

    def clear(self, n_clients: int | None = None) -> None:
        """Forget the reports before the next round.

        `n_clients` is the number of clients by now.
        """
        self.reported, self.new_failures = [], []
        if n_clients is not None and n_clients > len(self.failures):
            self.failures = np.pad(self.failures, (0, n_clients - len(self.failures)))

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        began = time.monotonic()
        updates = self.engine.train(clients, models, which, seed, work)
        self.seconds += time.monotonic() - began
        losses = updates.losses.numpy()
        model = models.shape[1] * models.element_size()
        steps = np.isfinite(losses).sum(1)  # [n]
        n_steps = int(steps.sum())
        self._count(
            bytes_down=len(clients) * model,
            # losses travel as float32, the sample count as one 8-byte integer
            bytes_up=len(updates) * (model + 8) + n_steps * 4,
            client_updates=len(updates),
            gradient_steps=n_steps,
            samples=0 if self.local is None else int(steps @ self.local.batch_sizes(updates.sizes).numpy()),
        )
        started = _starting_models(updates.clients, clients, which) if updates.which is None else updates.which
        private = (None if x is None else x.numpy() for x in (updates.rewards, updates.readings))
        self.reported.append(Reported(updates.clients, started, losses, *private))
        if not np.array_equal(updates.clients, clients):
            absent = np.setdiff1d(clients, updates.clients)
            self.new_failures += absent[self.failures[absent] == 0].tolist()
            self.failures[absent] += 1
        return updates

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        began = time.monotonic()
        scores = self.engine.evaluate(clients, models, which, split)
        self.seconds += time.monotonic() - began
        model = models.shape[1] * models.element_size()
        # A client is asked about several models in one exchange: it downloads each of them and answers with one loss each.
        self._count(bytes_down=len(clients) * model, bytes_up=len(clients) * 4, evaluations=int(scores.total.sum()))
        return scores

    def _count(self, **estimated: int) -> None:
        if self._counter is None:
            self.costs = self.costs.plus(**estimated)
            return
        now = self._counter.costs
        self.costs, self._counted = self.costs.plus(**now.since(self._counted)), now


def _starting_models(answered: Ids, clients: Ids, which: Ids) -> Ids:
    """Find the model that each of `answered` was asked to start from."""
    if np.array_equal(answered, clients):  # nearly always
        return np.array(which, np.int64)
    asked = dict(zip(clients.tolist(), which.tolist(), strict=True))
    return np.array([asked[k] for k in answered.tolist()], np.int64)
