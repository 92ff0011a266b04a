"""A part of a cohort through its whole local training: stacked, or one client after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.work import LocalTraining
from fedgwc.engines.captured import Captured
from fedgwc.engines.choose import Traits
from fedgwc.engines.kernels import stacked_conv
from fedgwc.engines.kernels.stacked_layers import fused
from fedgwc.engines.recorded import Recorded
from fedgwc.engines.samples import Samples
from fedgwc.engines.settings import EngineSettings
from fedgwc.engines.stack import StackedStep
from fedgwc.engines.transfer import Reading
from fedgwc.engines.workers import Job, Workers
from fedgwc.training.flat_model import FlatModel
from fedgwc.training.minibatches import Bounds
from fedgwc.training.step import gradient_of, lone_grad, sgd_step

log = logging.getLogger("fedgwc")
FEW_STEPS = 16  # on a CPU, rounds of more steps are recorded step by step: the rest of the round no longer matters


def run_steps(
    step: Callable[..., tuple[Tensor, Tensor, Tensor]], local: LocalTraining, n_params: int, samples: Samples,
    ids: Tensor, keys: Tensor, start: Tensor, bounds: Bounds,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """ids and keys [n], start [n, D] -> theta [n, D], losses [n, S], all on the device of the samples."""
    rows, batches = samples.cohort(local, ids, keys, bounds)
    rows = rows.transpose(0, 1).contiguous()  # [S, n, B]
    weights = batches.weights.to(start.dtype).unbind(1)
    labels = samples.labels(rows).unbind()
    theta, losses = start, []
    velocity = start.new_zeros(len(start), n_params if local.momentum else 0)
    for s, at in enumerate(rows.unbind()):
        theta, velocity, loss = step(theta, velocity, start, samples.inputs(at, keys, s), labels[s], weights[s])
        losses.append(loss)
    return theta, torch.stack(losses, 1)


def stacked_step(
    model: FlatModel, local: LocalTraining, ragged: bool, precision: str, channels_last: bool
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """`sgd_step` of many clients in kernels made for them."""
    twin = FlatModel(fused(model.module, precision), model.dtype, model.device)
    gradient = torch.func.vmap(stacked_conv.wrapped(gradient_of(twin), precision, channels_last), randomness="different")

    def step(theta: Tensor, velocity: Tensor, anchor: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        from fedgwc.engines.kernels.triton_dense import descend

        grads, state, loss = gradient(theta, x, y, w)
        working = w.sum(1) > 0 if ragged else None
        new, velocity = descend(theta, grads, velocity, anchor, working, local)
        if state.shape[1]:
            old = theta[:, model.n_params :]
            new[:, model.n_params :] = state if working is None else torch.where(working[:, None], state, old)
        return new, velocity, loss if working is None else torch.where(working, loss, torch.nan)

    return step


class Stacked:
    """All clients in one vmap step; the whole training of a cohort is one recorded program where that pays."""

    def __init__(
        self, model: FlatModel, local: LocalTraining, samples: Samples, settings: EngineSettings, traits: Traits
    ) -> None:
        self.model, self.local, self.samples, self.traits = model, local, samples, traits
        cuda = model.device.type == "cuda"
        self._precision = "ieee" if settings.precision == "float32" else settings.precision
        self._own_kernels = stacked_conv.available(model.device, model.dtype)
        self._captured = Captured() if cuda and settings.graphs else None
        # Images that are read from a disk are not tensor operations.
        self._recorded = None if cuda or not isinstance(samples.x, Tensor) else Recorded()
        self._steps = {ragged: self._stack(ragged) for ragged in (False, True)}

    def _stack(self, ragged: bool) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
        if self._own_kernels:
            # BatchNorm under vmap refuses images with the channels innermost.
            return stacked_step(self.model, self.local, ragged, self._precision, channels_last=not self.traits.batch_norm)
        step = sgd_step(self.model, self.local, ragged)
        return StackedStep(step) if self.model.device.type == "cpu" else torch.func.vmap(step, randomness="different")

    def __call__(self, ids: Tensor, keys: Tensor, models: Tensor, which: Tensor, bounds: Bounds) -> tuple[Tensor, Reading]:
        """ids, keys and which [n], models [M, D] -> theta [n, D], and losses and sums of theta [n, S + 1]."""

        def program(who: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
            step = self._steps[bounds.ragged]
            theta, losses = run_steps(step, self.local, self.model.n_params, self.samples, who[0], who[1], start, bounds)
            return theta, torch.cat([losses, theta.sum(1, keepdim=True)], 1)  # all that the host reads, in one piece

        # In one piece: each way to a GPU takes its time.
        who = torch.stack([ids, keys, which]).to(self.model.device, non_blocking=True)
        inputs = (who[:2], models.index_select(0, who[2]))
        with torch.no_grad():
            if self._captured is not None:
                theta, report = self._captured((len(ids), bounds), program, *inputs)
                theta = theta.clone()  # the recording will write there again
            elif self._recorded is not None and bounds.steps <= FEW_STEPS:
                theta, report = self._recorded((len(ids), bounds), program, *inputs)
            else:
                theta, report = program(*inputs)
        return theta, Reading(report)


class OneByOne:
    """One client after the other, or one per worker process; without padding, since there is no company."""

    def __init__(self, model: FlatModel, local: LocalTraining, samples: Samples, traits: Traits, workers: int) -> None:
        self.model, self.local, self.samples, self.traits = model, local, samples, traits
        self._step = sgd_step(model, local, ragged=False, own=model.device.type == "cuda", grad=lone_grad)
        # On a CPU, convolutions and pooling are faster with the channels innermost.
        self._channels_last = traits.convolutional and model.device.type == "cpu"
        self._workers = Workers(workers, self.single, model) if workers else None

    def __call__(self, ids: Tensor, keys: Tensor, models: Tensor, which: Tensor, bounds: Bounds) -> tuple[Tensor, Reading]:
        """ids, keys and which [n], models [M, D] -> theta [n, D], and losses and sums of theta [n, S + 1]."""
        work = list(zip(ids.tolist(), keys.tolist(), which.tolist(), strict=True))
        # Workers are started before there is anything large here that they would inherit.
        results = self._workers(work, models) if self._workers is not None else self._in_turn(work, models)
        theta = models.new_full((len(ids), models.shape[1]), torch.nan)
        losses = torch.full((len(ids), bounds.steps), torch.nan, dtype=models.dtype)
        for i, model, loss in results:
            theta[i], losses[i, : len(loss)] = model, loss.cpu()
        return theta, Reading(torch.cat([losses, theta.sum(1, keepdim=True).cpu()], 1))

    def _in_turn(self, work: list[Job], models: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        for i, (client, key, model) in enumerate(work):
            yield i, *self.single(client, key, models[model])

    def single(self, client: int, key: int, start: Tensor) -> tuple[Tensor, Tensor]:
        """start [D] -> theta [D], losses [S]; NaN if the model cannot learn from what the client has."""
        bounds = Bounds.of(self.local, self.samples.sizes[client : client + 1].cpu())
        ids, keys = torch.tensor([[client], [key]], device=start.device)
        devices = [start.device] if start.device.type == "cuda" else []
        with torch.random.fork_rng(devices, enabled=self.traits.dropout):
            if self.traits.dropout:
                torch.manual_seed(key)  # Dropout draws from the global generator
            try:
                run = (self._lone_step, self.local, self.model.n_params, self.samples)
                theta, losses = run_steps(*run, ids, keys, start[None], bounds)
            except InputError:  # samples that cannot be read, which no other client makes up for
                raise
            except ValueError as error:  # BatchNorm refuses to learn from a single value
                log.warning("client %d, with %d samples per batch, cannot train this model: %s", client, bounds.width, error)
                return torch.full_like(start, torch.nan), start.new_full((bounds.steps,), torch.nan)
        return theta[0], losses[0]

    def _lone_step(self, *stacked: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        theta, velocity, anchor, x, y, w = (t[0] for t in stacked)
        if self._channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        theta, velocity, loss = self._step(theta, velocity, anchor, x, y, w)
        return theta[None], velocity[None], loss[None]
