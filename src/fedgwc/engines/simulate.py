"""All clients on one machine: one at a time, one per worker process, or a whole cohort stacked in one vmap step."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedgwc import random
from fedgwc.core import Ids, Scores, Split, Updates
from fedgwc.data.federation import Federation
from fedgwc.engines.choose import Traits, choose, traits_of
from fedgwc.engines.samples import Samples
from fedgwc.engines.settings import DTYPES, EngineSettings, cores, device_of, require_determinism, running
from fedgwc.engines.train import Bounds, OneByOne, Stacked
from fedgwc.local import FlatModel, LocalTraining, bounds_of

__all__ = ["EngineSettings", "Simulator"]
log = logging.getLogger("fedgwc")


class Simulator:
    """An `Engine` over a `Federation` held in memory, on the device where it trains."""

    def __init__(
        self,
        federation: Federation,
        module: nn.Module,
        local: LocalTraining | None = None,
        settings: EngineSettings | None = None,
    ) -> None:
        self.federation = federation
        self.local = local or LocalTraining()
        self.settings = settings or EngineSettings()
        self.device = device_of(self.settings)
        if self.settings.deterministic:
            require_determinism()
        self.model = FlatModel(module, DTYPES[self.settings.dtype], self.device)
        self.traits: Traits = traits_of(module)
        self.how, self.threads, self.workers = choose(self.settings, self.traits, self.device)
        self.samples = Samples(federation, self.device, self.model.dtype)
        self.sizes = torch.from_numpy(federation.train.sizes)
        self._one_by_one = OneByOne(self.model, self.local, self.samples, self.traits, self.workers)
        self._stacked = Stacked(self.model, self.local, self.samples, self.settings, self.traits)

    def choices(self) -> dict[str, object]:
        """What it chose for itself, as settings that would choose the same again."""
        return {"device": self.device.type, "how": self.how, "threads": self.threads, "workers": self.workers}

    # Training

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        keys = random.keys(torch.tensor(seed), torch.from_numpy(np.array(clients, np.int64)))
        return self.train_keyed(clients, models, which, keys)

    def train_keyed(self, clients: Ids, models: Tensor, which: Ids, keys: Tensor) -> Updates:
        """Training whose random draws follow from `keys` [n] on the CPU, whatever a client's number is here."""
        with running(self.threads, self.settings.precision, self.device):
            return self._train(np.array(clients, np.int64), models, np.array(which, np.int64), keys)

    def _train(self, clients: Ids, models: Tensor, which: Ids, keys: Tensor) -> Updates:
        start = models.to(self.device, self.model.dtype)[torch.from_numpy(which).to(self.device)]  # [n, D]
        ids = torch.from_numpy(clients)
        sizes = self.sizes[ids]
        steps = self.local.step_counts(sizes)
        self.model.module.train()
        parts = list(self._parts(self.local.batch_sizes(sizes)))
        if len(parts) == 1:
            theta, losses, total = self._train_part(ids, keys, start, self._bounds(sizes))
        else:
            theta, total = torch.empty_like(start), torch.empty(len(ids), dtype=start.dtype)
            losses = torch.full((len(ids), int(steps.max()) if len(ids) else 0), torch.nan, dtype=start.dtype)
            for part in parts:
                bounds, at = self._bounds(sizes[part]), part.to(self.device)
                theta[at], losses[part, : bounds.steps], total[part] = self._train_part(ids[part], keys[part], start[at], bounds)
        ok = self._healthy(total, losses, steps)
        return Updates(clients, theta, losses, sizes, self.model.n_params).rows(ok)

    def _parts(self, widths: Tensor) -> Iterator[Tensor]:
        """Rows that run together."""
        # Padding must not enter BatchNorm's statistics: only clients with equally large batches are stacked.
        kinds = sorted(set(widths.tolist())) if self.traits.batch_norm and self.how == "stacked" else [None]
        for kind in kinds:
            rows = torch.arange(len(widths)) if kind is None else (widths == kind).nonzero()[:, 0]
            if len(rows):
                yield from rows.split(self.settings.chunk or len(rows))

    def _bounds(self, sizes: Tensor) -> Bounds:
        steps, epochs, longest = bounds_of(self.local, sizes)
        widths, counts = self.local.batch_sizes(sizes), self.local.step_counts(sizes)
        even = bool((widths == widths[0]).all() and (counts == counts[0]).all())
        return Bounds(steps, epochs, longest, int(widths.max()), not even)

    def _train_part(self, ids: Tensor, keys: Tensor, start: Tensor, bounds: Bounds) -> tuple[Tensor, Tensor, Tensor]:
        """Some clients' whole local training: start [m, D] -> theta [m, D] and, on the CPU, losses [m, S], sums of theta [m]."""
        if self.how == "stacked" and not (self.traits.batch_norm and bounds.width == 1):
            try:
                return self._stacked(ids, keys, start, bounds)
            except (RuntimeError, NotImplementedError, ValueError) as error:
                if isinstance(error, torch.cuda.OutOfMemoryError):
                    raise
                log.warning("this model cannot be stacked, so clients run one by one (%s)", str(error).splitlines()[0])
                self.how = "one-by-one"
        theta, losses = self._one_by_one(ids, keys, start, bounds)
        return theta, losses, theta.sum(1).cpu()

    def _healthy(self, total: Tensor, losses: Tensor, steps: Tensor) -> Ids:
        """Rows whose model and losses are finite; the others failed, and a failed client is a missing row.

        `total` is the sum of a model's entries: it is finite only if all of them are.
        """
        missing = torch.arange(losses.shape[1]) >= steps[:, None]
        ok = torch.isfinite(total) & (torch.isfinite(losses) | missing).all(1)
        return ok.nonzero()[:, 0].numpy()

    # Evaluation

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        # Nobody trains meanwhile, so large models may use every core.
        threads = self.threads if self.settings.threads or not self.traits.convolutional else cores()
        with running(threads, self.settings.precision, self.device), torch.no_grad():
            return self._evaluate(np.asarray(clients, np.int64), models, np.asarray(which, np.int64), split)

    def _evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split) -> Scores:
        rows, n_classes = self.federation.rows(split), self.federation.n_classes
        owner = np.repeat(np.arange(len(clients)), rows.sizes[clients])  # which row of the answer a sample counts for
        flat = np.concatenate([rows[k] for k in clients])
        loss, right = np.empty(len(flat)), np.empty(len(flat), bool)
        self.model.module.eval()
        for m in np.unique(which):
            tensors = self.model.tensors(models[int(m)].to(self.device, self.model.dtype), own=self.device.type == "cuda")
            mine = np.flatnonzero(which[owner] == m)
            for piece in np.array_split(mine, -(-len(mine) // self.samples.evaluation_batch())):
                loss[piece], right[piece] = self._score(tensors, torch.from_numpy(flat[piece]).to(self.device))
        cell = owner * n_classes + self.federation.y.numpy()[flat]  # (row, true class) as one number
        total = np.bincount(cell, minlength=len(clients) * n_classes).reshape(len(clients), n_classes)
        correct = np.bincount(cell, weights=right, minlength=total.size).reshape(total.shape).astype(np.float64)
        mean = np.bincount(owner, loss, len(clients)) / total.sum(1)
        return Scores(clients, mean, correct, total.astype(np.float64))

    def _score(self, tensors: dict[str, Tensor], at: Tensor) -> tuple[np.ndarray, np.ndarray]:
        x = self.samples.inputs(at)
        if x.ndim == 4 and self.traits.convolutional:
            x = x.contiguous(memory_format=torch.channels_last)
        logits, y = self.model.logits(tensors, x), self.samples.y[at]
        return F.cross_entropy(logits, y, reduction="none").cpu().numpy(), (logits.argmax(1) == y).cpu().numpy()
