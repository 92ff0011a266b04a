"""Evaluation of models on clients' data.

Models that share their samples run as one, and all results are read back at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedgwc.core.errors import InputError
from fedgwc.core.types import Ids, Scores, Split
from fedgwc.data.federation import Federation
from fedgwc.data.rows import Rows
from fedgwc.engines.captured import Captured
from fedgwc.engines.choose import Traits
from fedgwc.engines.kernels import stacked_conv
from fedgwc.engines.kernels.stacked_layers import fused
from fedgwc.engines.recorded import Recorded
from fedgwc.engines.samples import Samples
from fedgwc.engines.settings import EngineSettings
from fedgwc.engines.stack import recorded_stack
from fedgwc.training.flat_model import FlatModel

log = logging.getLogger("fedgwc")
Logits = Callable[[Tensor, Tensor], Tensor]  # one model's (theta [D], x [B, ...]) -> [B, C]
WIDTH = 512  # samples at a time on a GPU: kernels are compiled for a width, and one serves all; a power of two


class Evaluation:
    """An evaluator of models on a federation's clients.

    The module is a copy that always evaluates: training has its own.
    """

    def __init__(
        self, federation: Federation, model: FlatModel, samples: Samples, settings: EngineSettings, traits: Traits, chunk: int
    ) -> None:
        self.federation, self.samples, self.traits = federation, samples, traits
        self._rows: dict[Split, Rows] = {}  # of all clients, newcomers last
        self.model = _evaluating(model, model.module)
        cuda, triton = model.device.type == "cuda", stacked_conv.available(model.device, model.dtype)
        self._batch, self._chunk = samples.evaluation_batch(), chunk
        self._width = min(WIDTH, 1 << (self._batch.bit_length() - 1)) if cuda else 0  # 0: any
        # Convolutions gain from kernels of our own, small models from fewer operations; photographs on a disk are no tensor.
        self._stacks = isinstance(samples.x, Tensor) and (triton if cuda else not traits.convolutional)
        self._logits = _logits_of(self.model, copies=cuda)
        one = _in_triton(self.model, settings, traits) if triton else self._logits
        self._stacked_logits = torch.func.vmap(one, in_dims=(0, None))
        self._captured = Captured(model.device) if cuda and settings.graphs else None
        self._recorded = None if cuda else Recorded(record=recorded_stack)

    def __call__(self, clients: Ids, models: Tensor, which: Ids, split: Split, stacked: bool) -> Scores:
        """Score models[which] on each client's samples of a split; `stacked`: models may run together.

        Newcomers are numbered after the clients who train. Of a client without samples the loss is nan.
        """
        if split not in self._rows:
            self._rows[split] = self.federation.everyone(split)
        rows, n_classes = self._rows[split], self.federation.n_classes
        models = models.to(self.model.device, self.model.dtype)
        groups = list(_sharing(clients, which))
        order = np.concatenate([answers.ravel() for _, answers in groups])  # rows of the answer, as they are scored
        sizes = rows.sizes[clients]
        owner = np.repeat(order, sizes[order])  # the row of the answer that a sample counts for
        flat = np.concatenate([rows[k] for k in clients[order]])
        reports, start = [], 0
        for alike, answers in groups:
            if n_samples := int(sizes[answers[0]].sum()):
                reports.append(self._score(models, alike, flat[start : start + n_samples], stacked).flatten(1))
            start += len(alike) * n_samples
        loss, right = torch.cat(reports, 1).cpu().numpy() if reports else np.zeros((2, 0))
        cell = owner * n_classes + self.federation.y.numpy()[flat]  # (row, true class) as one number
        total = np.bincount(cell, minlength=len(clients) * n_classes).reshape(len(clients), n_classes)
        correct = np.bincount(cell, right, total.size).reshape(total.shape).astype(np.float64)
        mean = np.bincount(owner, loss, len(clients)) / np.where(sizes > 0, sizes, np.nan)
        hits = right[np.argsort(owner, kind="stable")].astype(np.uint8) if split == "test" else None
        return Scores(clients, mean, correct, total.astype(np.float64), hits)

    def _score(self, models: Tensor, alike: Ids, at: Ids, stacked: bool) -> Tensor:
        """Score models[alike] on the samples `at` [R]: [2, g, R].

        Losses, and 1 where the answer is right.
        """
        if stacked and self._stacks and (self._width or min(len(alike), self._chunk) > 1):
            try:
                return self._score_together(models, alike, at)
            except (RuntimeError, NotImplementedError, ValueError) as error:
                if isinstance(error, torch.cuda.OutOfMemoryError | InputError):
                    raise
                log.warning("this model cannot be stacked, so models are scored one by one (%s)", str(error).splitlines()[0])
                self._stacks = False
        return self._one_by_one(models, alike, at)

    def _one_by_one(self, models: Tensor, alike: Ids, at: Ids) -> Tensor:
        reports = []
        for piece in np.array_split(at, -(-len(at) // self._batch)):
            rows = torch.from_numpy(piece).to(models.device)
            x = self.samples.inputs(rows)
            if x.ndim == 4 and self.traits.convolutional:
                x = x.contiguous(memory_format=torch.channels_last)
            logits = torch.stack([self._logits(models[m], x) for m in alike])
            reports.append(_report(logits, self.samples.labels(rows)))
        return torch.cat(reports, 2)

    def _score_together(self, models: Tensor, alike: Ids, at: Ids) -> Tensor:
        """Score as many models at a time as fit.

        All on equally many samples; to fill the last piece some count twice.
        """
        n_pieces = -(-len(at) // (self._width or max(32, self._batch // min(len(alike), self._chunk))))
        width = self._width or -(-len(at) // n_pieces)
        pieces = torch.from_numpy(np.resize(at, (n_pieces, width))).to(models.device)
        reports = []
        for some in torch.from_numpy(alike).to(models.device).split(max(1, min(self._batch // width, self._chunk))):
            theta = models.index_select(0, some)
            reports.append(torch.cat([self._run(theta, piece) for piece in pieces], 2))
        return torch.cat(reports, 1)[:, :, : len(at)]

    def _run(self, theta: Tensor, rows: Tensor) -> Tensor:
        """Score theta [g, D] on rows [B]: [2, g, B].

        Shapes that recur often are recorded.
        """
        shape = (len(theta), len(rows))
        if self._captured is not None:
            return self._captured(shape, self._program, theta, rows)[0].clone()  # the recording will write there again
        if self._recorded is not None:
            return self._recorded(shape, self._program, theta, rows)[0]
        return self._program(theta, rows)[0]

    def _program(self, theta: Tensor, rows: Tensor) -> tuple[Tensor]:
        x = self.samples.inputs(rows[None])[0]
        return (_report(self._stacked_logits(theta, x), self.samples.labels(rows)),)


def _sharing(clients: Ids, which: Ids) -> Iterator[tuple[Ids, Ids]]:
    """Group the models [g] that score the same clients.

    Returns them with the rows [g, c] of `clients` where they do.
    """
    groups: dict[bytes, list[tuple[int, Ids]]] = {}
    for model in np.unique(which):
        mine = np.flatnonzero(which == model)
        groups.setdefault(clients[mine].tobytes(), []).append((model, mine))
    for group in groups.values():
        models, rows = zip(*group, strict=True)
        yield np.array(models), np.array(rows)


def _report(logits: Tensor, y: Tensor) -> Tensor:
    """Return each sample's loss and correctness, [2, g, B].

    Of logits [g, B, C]; 1 where the label has the largest logit.
    """
    shape = logits.shape[:2]
    loss = F.cross_entropy(logits.flatten(0, 1), y.expand(shape).reshape(-1), reduction="none").view(shape)
    return torch.stack([loss, (logits.argmax(2) == y).to(loss.dtype)])


def _evaluating(like: FlatModel, module: nn.Module) -> FlatModel:
    """Copy a model for evaluation, without Dropout and with BatchNorm's running statistics."""
    model = FlatModel(module, like.dtype, like.device)
    model.module.eval()
    return model


def _logits_of(model: FlatModel, copies: bool = False) -> Logits:
    return lambda theta, x: model.logits(model.tensors(theta, copies), x)


def _in_triton(model: FlatModel, settings: EngineSettings, traits: Traits) -> Logits:
    """Return the logits in Triton kernels, for a GPU and under vmap only."""
    precision = "ieee" if settings.precision == "float32" else "tf32"  # bf16 is for training
    twin = _evaluating(model, fused(model.module, precision))
    return stacked_conv.wrapped(_logits_of(twin), precision, channels_last=not traits.batch_norm)
