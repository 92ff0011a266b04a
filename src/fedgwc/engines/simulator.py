"""The simulator: all clients on one machine.

One at a time, one per worker process, or a whole cohort stacked in one vmap step.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from fedgwc.core import random
from fedgwc.core.errors import InputError
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import Facts
from fedgwc.core.tensors import to_device
from fedgwc.core.types import Ids, Scores, Split, Updates
from fedgwc.core.work import LocalTraining, Work
from fedgwc.data.federation import Federation
from fedgwc.engines.choose import Traits, choose, most_stacked, traits_of
from fedgwc.engines.evaluate import Evaluation
from fedgwc.engines.model_check import check_fits
from fedgwc.engines.round_inputs import USUAL, RoundInputs, round_inputs
from fedgwc.engines.samples import Samples
from fedgwc.engines.settings import DTYPES, EngineSettings, cores, device_of, require_determinism, running
from fedgwc.engines.train import OneByOne, Stacked
from fedgwc.engines.transfer import Reading
from fedgwc.training.flat_model import FlatModel
from fedgwc.training.minibatches import Bounds

__all__ = ["EngineSettings", "Simulator"]
log = logging.getLogger("fedgwc")


class Simulator:
    """An `Engine` over a `Federation` in memory, on one device."""

    def __init__(
        self,
        federation: Federation,
        module: nn.Module,
        local: LocalTraining | None = None,
        settings: EngineSettings | None = None,
    ) -> None:
        check_fits(module, federation.shape, federation.n_classes)
        self.federation = federation
        self.local = local or LocalTraining()
        self.settings = settings or EngineSettings()
        self.device = device_of(self.settings)
        if self.settings.deterministic:
            require_determinism()
        self.model = FlatModel(module, DTYPES[self.settings.dtype], self.device)
        self.traits: Traits = traits_of(self.model.module)
        self.how, self.threads, self.workers = choose(self.settings, self.traits, self.device)
        self.chunk = self.settings.chunk or most_stacked(self.model.size, self.device)
        self.samples = Samples(federation, self.device, self.model.dtype)
        self.sizes = torch.from_numpy(federation.train.sizes)
        self._widths = self.local.batch_sizes(self.sizes).numpy()
        self._steps = self.local.step_counts(self.sizes).numpy()
        self._bounds_of_all = Bounds.of(self.local, self.sizes)
        self._one_by_one = OneByOne(self.model, self.local, self.samples, self.traits, self.workers)
        self._stacked = Stacked(self.model, self.local, self.samples, self.settings, self.traits)
        self._evaluation = Evaluation(federation, self.model, self.samples, self.settings, self.traits, self.chunk)

    @property
    def layout(self) -> Layout:
        return self.model.layout

    @property
    def facts(self) -> Facts:
        at_once = {"stacked": self.chunk, "workers": self.workers}.get(self.how, 1)
        chosen = {"device": str(self.device), "how": self.how, "threads": self.threads, "workers": self.workers}
        return Facts(self.device, at_once, chosen)

    # Training

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        models = models.to(self.device, self.model.dtype)
        keys = random.keys(seed, np.asarray(clients, np.int64))
        return self.begin(clients, models, which, keys, round_inputs(work, self.local, models))()

    def begin(self, clients: Ids, models: Tensor, which: Ids, keys: Tensor, inputs: RoundInputs = USUAL) -> Callable[[], Updates]:
        """Start training, and return a function that waits for it.

        A card works on its own meanwhile.

        Random draws follow from `keys` [n] on the CPU, whatever a client's number is here.
        """
        if models.ndim != 2 or models.shape[1] != self.model.size:
            raise InputError(f"this module's models are [M, {self.model.size}], got {list(models.shape)}")
        with running(self.threads, self.settings.precision, self.device):
            return self._begin(np.array(clients, np.int64), models, np.array(which, np.int64), keys, inputs)

    def train_one(self, client: int, key: int, start: Tensor, work: Work | None = None) -> tuple[Tensor, Tensor]:
        """Train one client alone from start [D].

        Returns theta [D], losses [S]; NaN if it cannot train this model.
        """
        inputs = round_inputs(work, self.local, start[None])
        with running(self.threads, self.settings.precision, self.device):
            return self._one_by_one.single(client, key, start, inputs)

    def _begin(self, clients: Ids, models: Tensor, which: Ids, keys: Tensor, inputs: RoundInputs) -> Callable[[], Updates]:
        ids, origin = torch.from_numpy(clients), torch.from_numpy(which)
        parts = self._parts(clients)
        if len(parts) == 1:
            theta, reading = self._train_part(ids, keys, models, origin, self._bounds(clients), inputs)
            readings = [(parts[0], reading)]
        else:  # written part by part into one tensor: a cohort of large models must not be held twice
            theta, readings = models.new_empty(len(ids), models.shape[1]), []
            for rows in parts:
                part = torch.from_numpy(rows)
                bounds = self._bounds(clients[rows])
                done, reading = self._train_part(ids[part], keys[part], models, origin[part], bounds, inputs)
                theta[to_device(self.device, rows)] = done
                readings.append((rows, reading))
        return lambda: self._finish(clients, theta, readings)

    def _finish(self, clients: Ids, theta: Tensor, readings: list[tuple[Ids, Reading]]) -> Updates:
        if len(readings) == 1:
            read = readings[0][1].wait()
            losses, total = read[:, :-1], read[:, -1]
        else:
            total = torch.empty(len(clients), dtype=theta.dtype)
            losses = torch.full((len(clients), self._steps[clients].max(initial=0)), torch.nan, dtype=theta.dtype)
            for rows, reading in readings:
                read, part = reading.wait(), torch.from_numpy(rows)
                losses[part, : read.shape[1] - 1], total[part] = read[:, :-1], read[:, -1]
        ok = self._finite_rows(total, losses, self._steps[clients])
        sizes = self.sizes.index_select(0, torch.from_numpy(clients))
        updates = Updates(clients, theta, losses, sizes, self.model.n_params)
        return updates if len(ok) == len(clients) else updates.rows(ok)

    def _parts(self, clients: Ids) -> list[Ids]:
        """Divide a cohort into rows that run together."""
        rows = np.arange(len(clients))
        if self.how != "stacked":
            return [rows] if len(rows) else []
        alike = [rows]
        if self.traits.batch_norm:  # padding must not enter its statistics: only clients with equally large batches are stacked
            widths = self._widths[clients]
            alike = [rows[widths == width] for width in np.unique(widths)]
        return [part[i : i + self.chunk] for part in alike for i in range(0, len(part), self.chunk)]

    def _bounds(self, clients: Ids) -> Bounds:
        """Round a cohort's shapes up.

        Programs are recorded by shape, and a few of them serve all cohorts.
        """
        if self.samples.even:
            return self._bounds_of_all
        exact, most = Bounds.of(self.local, self.sizes[torch.from_numpy(clients)]), self._bounds_of_all
        epochs, longest = (1 << (n - 1).bit_length() for n in (exact.epochs, exact.longest))
        return replace(exact, epochs=min(epochs, most.epochs), longest=min(longest, most.longest), ragged=most.ragged)

    def _train_part(
        self, ids: Tensor, keys: Tensor, models: Tensor, which: Tensor, bounds: Bounds, inputs: RoundInputs
    ) -> tuple[Tensor, Reading]:
        """Train some clients of a cohort.

        Returns theta [m, D], and losses and sums of theta [m, S + 1].
        """
        if self.how == "stacked" and not (self.traits.batch_norm and bounds.width == 1):
            try:
                return self._stacked(ids, keys, models, which, bounds, inputs)
            except (RuntimeError, NotImplementedError, ValueError) as error:
                if isinstance(error, torch.cuda.OutOfMemoryError | InputError):
                    raise
                log.warning("this model cannot be stacked, so clients run one by one (%s)", str(error).splitlines()[0])
                self.how = "one-by-one"
        return self._one_by_one(ids, keys, models, which, bounds, inputs)

    def _finite_rows(self, total: Tensor, losses: Tensor, steps: Ids) -> Ids:
        """Find the rows whose model and losses are finite.

        The others failed, and a failed client is a missing row.

        `total` is the sum of a model's entries: it is finite only if all of them are.
        """
        if math.isfinite(total.sum() + losses.sum()):  # nearly always, and then there is nothing to look for
            return np.arange(len(total))
        missing = np.arange(losses.shape[1]) >= steps[:, None]
        ok = np.isfinite(total.numpy()) & (np.isfinite(losses.numpy()) | missing).all(1)
        return np.flatnonzero(ok)

    # Evaluation

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        # Nobody trains meanwhile, so large models may use every core.
        threads = self.threads if self.settings.threads or not self.traits.convolutional else cores()
        with running(threads, self.settings.precision, self.device), torch.no_grad():
            ids, origin = np.asarray(clients, np.int64), np.asarray(which, np.int64)
            return self._evaluation(ids, models, origin, split, stacked=self.how == "stacked")
