"""All clients on one machine: one at a time, or a whole cohort stacked in one `torch.func.vmap` step."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedgwc import random
from fedgwc.core import Ids, Scores, Split, Updates
from fedgwc.data.augment import crop_and_flip
from fedgwc.data.federation import Federation
from fedgwc.engines.stack import StackedStep
from fedgwc.errors import InputError
from fedgwc.local import FlatModel, LocalTraining, Minibatches, minibatches, sgd_step

log = logging.getLogger("fedgwc")

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class EngineSettings:
    """How to run a cohort. Nothing here changes what is computed, except `dtype` and the rounding of sums."""

    device: str = "auto"  # auto | cpu | cuda
    how: Literal["auto", "stacked", "one-by-one"] = "auto"
    dtype: Literal["float32", "float64"] = "float32"
    threads: int = 0  # of PyTorch while clients train; 0: one for stacked small models, else every core
    chunk: int = 0  # most clients stacked at once, to bound the memory of activations; 0: all
    stack_random: bool = False  # stack models with Dropout too; their random draws then depend on the company
    deterministic: bool = False  # on CUDA: only kernels that give the same bits every time

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cpu", "cuda"):
            raise InputError(f"engine.device must be auto, cpu or cuda, got {self.device!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("engine.device is cuda, but PyTorch sees no CUDA device here; use auto or cpu")
        if self.chunk < 0 or self.threads < 0:
            raise InputError(f"engine.chunk and engine.threads must be >= 0, got {self.chunk} and {self.threads}; 0 is automatic")


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
        name = self.settings.device
        self.device = torch.device("cuda" if name == "auto" and torch.cuda.is_available() else name.replace("auto", "cpu"))
        self.model = FlatModel(module, DTYPES[self.settings.dtype], self.device)
        self.how = self._choose(module)
        # The operators of a small stacked model are too short to share: a second thread only waits, and if another
        # process holds its core, everything waits for it.
        self.threads = self.settings.threads or (1 if self.how == "stacked" else torch.get_num_threads())
        self.x, self.y = federation.x.to(self.device), federation.y.to(self.device)
        self.flat = torch.from_numpy(federation.train.flat).to(self.device)
        self.offsets = torch.from_numpy(federation.train.offsets)
        self.sizes = torch.from_numpy(federation.train.sizes)
        self._single = sgd_step(self.model, self.local)
        self._stacked = StackedStep(self._single)
        self._even_batches_only = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules())
        self._random = _has_dropout(module)
        self._constants = self._normalisation()

    def _choose(self, module: nn.Module) -> Literal["stacked", "one-by-one"]:
        how = self.settings.how
        if _has_dropout(module) and not self.settings.stack_random:
            if how == "stacked":
                log.warning(
                    "the model uses Dropout, so clients run one by one; engine.stack_random=true stacks them all the same"
                )
            return "one-by-one"
        if how != "auto":
            return how
        # Convolutions on a CPU are compute bound and slower when stacked; everything else is bound by overhead.
        convolutional = any(isinstance(m, nn.modules.conv._ConvNd) for m in module.modules())
        return "one-by-one" if convolutional and self.device.type == "cpu" else "stacked"

    # Training

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        with _threads(self.threads):
            return self._train(clients, models, which, seed)

    def _train(self, clients: Ids, models: Tensor, which: Ids, seed: int) -> Updates:
        start = models.to(self.device, self.model.dtype)[torch.from_numpy(np.array(which, np.int64))]  # [n, D]
        ids = torch.from_numpy(np.array(clients, np.int64))
        sizes = self.sizes[ids]
        keys = random.keys(torch.tensor(seed), ids)
        batches = minibatches(self.local, sizes, keys)
        rows = self.flat[(self.offsets[ids][:, None, None] + batches.places).to(self.device)]  # [n, S, B]
        theta = torch.empty_like(start)
        losses = torch.empty(rows.shape[:2], dtype=self.model.dtype, device=self.device)
        self.model.module.train()
        widths = self.local.batch_sizes(sizes)
        for part in self._parts(widths):
            width = int(widths[part].max())  # no padding beyond what this company needs
            theta[part], losses[part] = self._train_part(part, start[part], rows[part, :, :width], batches, keys)
        done = losses.cpu()
        ok = self._healthy(theta, done, batches.steps)
        return Updates(np.asarray(clients, np.int64), theta, done, sizes, self.model.n_params).rows(ok)

    def _parts(self, widths: Tensor) -> Iterator[Tensor]:
        """Rows that run together."""
        if self.how == "one-by-one":
            yield from torch.arange(len(widths))[:, None]
            return
        # Padding must not enter BatchNorm's statistics: only clients with equally large batches are stacked.
        kinds = sorted(set(widths.tolist())) if self._even_batches_only else [None]
        for kind in kinds:
            rows = torch.arange(len(widths)) if kind is None else (widths == kind).nonzero()[:, 0]
            yield from rows.split(self.settings.chunk or len(rows))

    def _train_part(self, part: Tensor, start: Tensor, rows: Tensor, batches: Minibatches, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Some clients' whole local training: start [m, D], rows [m, S, B] -> theta [m, D], losses [m, S]."""
        if self.how == "stacked" and not (self._even_batches_only and rows.shape[2] == 1):
            try:
                return self._run(self._stacked, part, start, rows, batches, keys)
            except (RuntimeError, NotImplementedError, ValueError) as error:
                log.warning("this model cannot be stacked, so clients run one by one (%s)", str(error).splitlines()[0])
                self.how = "one-by-one"
        widths = (batches.weights[part, 0] > 0).sum(1)
        one = [slice(i, i + 1) for i in range(len(part))]
        single = [self._run_single(part[i], start[i], rows[i, :, : int(widths[i])], batches, keys) for i in one]
        return torch.cat([theta for theta, _ in single]), torch.cat([loss for _, loss in single])

    def _run_single(self, part: Tensor, start: Tensor, rows: Tensor, batches: Minibatches, keys: Tensor) -> tuple[Tensor, Tensor]:
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else [], enabled=self._random):
            if self._random:
                torch.manual_seed(int(keys[part[0]]))  # Dropout draws from the global generator
            try:
                return self._run(self._lone_step, part, start, rows, batches, keys)
            except ValueError as error:  # BatchNorm refuses to learn from a single value
                log.warning("a client with %d samples per batch cannot train this model: %s", rows.shape[2], error)
                return torch.full_like(start, torch.nan), start.new_full(rows.shape[:2], torch.nan)

    def _lone_step(self, *stacked: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        theta, velocity, loss = self._single(*[t[0] for t in stacked])
        return theta[None], velocity[None], loss[None]

    def _run(
        self, step: object, part: Tensor, start: Tensor, rows: Tensor, batches: Minibatches, keys: Tensor
    ) -> tuple[Tensor, Tensor]:
        weights = batches.weights[part, :, : rows.shape[2]].to(start)
        theta, losses = start, []
        velocity = start.new_zeros(len(start), self.model.n_params if self.local.momentum else 0)
        for s in range(rows.shape[1]):
            x, y = self.inputs(rows[:, s], keys[part], s), self.y[rows[:, s]]
            theta, velocity, loss = step(theta, velocity, start, x, y, weights[:, s])  # type: ignore[operator]
            losses.append(loss)
        return theta, torch.stack(losses, 1)

    def _healthy(self, theta: Tensor, losses: Tensor, steps: Tensor) -> Ids:
        """Rows whose model and losses are finite; the others failed, and a failed client is a missing row."""
        missing = torch.arange(losses.shape[1]) >= steps[:, None]
        ok = torch.isfinite(theta).all(1).cpu() & (torch.isfinite(losses) | missing).all(1)
        return ok.nonzero()[:, 0].numpy()

    # Data as the model sees it

    def inputs(self, rows: Tensor, keys: Tensor | None = None, step: int = 0) -> Tensor:
        """x at `rows`, scaled, normalised, and augmented where `keys` [n] name the clients of rows [n, B]."""
        x = self.x[rows].to(self.model.dtype)
        mean, deviation = self._constants
        x = (x - mean) / deviation
        if keys is not None and self.federation.augment:
            x = crop_and_flip(x, keys.to(x.device), step, (-mean / deviation).flatten())
        return x

    def _normalisation(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation per channel, in the units of the stored pixels."""
        f = self.federation
        scale = 255.0 if f.x.dtype == torch.uint8 else 1.0
        n_channels = f.x.shape[1] if f.x.ndim > 2 else 1
        shape = (n_channels, *(1,) * (f.x.ndim - 2)) if f.x.ndim > 2 else (1,)
        mean = torch.tensor(f.mean or (0.0,) * n_channels, dtype=self.model.dtype, device=self.device)
        std = torch.tensor(f.std or (1.0,) * n_channels, dtype=self.model.dtype, device=self.device)
        return scale * mean.view(shape), scale * std.view(shape)

    # Evaluation

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        with _threads(self.threads), torch.no_grad():
            return self._evaluate(clients, models, which, split)

    def _evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split) -> Scores:
        clients, which = np.asarray(clients, np.int64), np.asarray(which, np.int64)
        rows, n_classes = self.federation.rows(split), self.federation.n_classes
        owner = np.repeat(np.arange(len(clients)), rows.sizes[clients])  # which row of the answer a sample counts for
        flat = np.concatenate([rows[k] for k in clients])
        y = self.federation.y.numpy()[flat]
        loss, right = np.empty(len(flat)), np.empty(len(flat), bool)
        self.model.module.eval()
        for m in np.unique(which):
            tensors = self.model.tensors(models[int(m)].to(self.device, self.model.dtype))
            mine = np.flatnonzero(which[owner] == m)
            for piece in np.array_split(mine, -(-len(mine) // self._evaluation_batch())):
                at = torch.from_numpy(flat[piece]).to(self.device)
                logits = self.model.logits(tensors, self.inputs(at))
                loss[piece] = F.cross_entropy(logits, self.y[at], reduction="none").cpu().numpy()
                right[piece] = (logits.argmax(1) == self.y[at]).cpu().numpy()
        cell = owner * n_classes + y  # (row, true class) as one number
        total = np.bincount(cell, minlength=len(clients) * n_classes).reshape(len(clients), n_classes)
        correct = np.bincount(cell, weights=right, minlength=total.size).reshape(total.shape).astype(np.float64)
        mean = np.bincount(owner, loss, len(clients)) / total.sum(1)
        return Scores(clients, mean, correct, total.astype(np.float64))

    def _evaluation_batch(self) -> int:
        return max(64, 2**23 // math.prod(self.x.shape[1:]))


@contextmanager
def _threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _has_dropout(module: nn.Module) -> bool:
    return any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in module.modules())
