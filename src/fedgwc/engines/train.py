"""Local training of a part of a cohort.

Stacked, or one client after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import torch
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.work import LocalTraining
from fedgwc.engines.captured import Captured
from fedgwc.engines.choose import Traits
from fedgwc.engines.kernels import stacked_conv
from fedgwc.engines.recorded import Recorded
from fedgwc.engines.round_inputs import RoundInputs
from fedgwc.engines.samples import Samples
from fedgwc.engines.settings import EngineSettings
from fedgwc.engines.stack import StackedStep
from fedgwc.engines.transfer import Reading
from fedgwc.engines.triton_step import triton_step
from fedgwc.engines.workers import Job, Workers
from fedgwc.training.flat_model import FlatModel
from fedgwc.training.minibatches import Bounds
from fedgwc.training.step import Step, local_step, lone_grad

log = logging.getLogger("fedgwc")
FEW_STEPS = 16  # on a CPU, rounds of more steps are recorded step by step: the rest of the round no longer matters


def run_steps(
    step: Step, local: LocalTraining, samples: Samples, bounds: Bounds,
    ids: Tensor, keys: Tensor, start: Tensor, inputs: RoundInputs,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Take all steps of clients' local training.

    Ids and keys [n], start [n, D] and a row of inputs each -> theta [n, D], losses [n, S].
    """
    rows, batches = samples.cohort(local, ids, keys, bounds)
    rows = rows.transpose(0, 1).contiguous()  # [S, n, B]
    weights = batches.weights.to(start.dtype).unbind(1)
    labels = samples.labels(rows).unbind()
    anchor, moves, rate = inputs.arguments(start)
    theta, losses = start, []
    memory: list[Tensor] = []
    for s, at in enumerate(rows.unbind()):
        x = samples.inputs(at, keys, s)
        theta, loss, *memory = step(theta, anchor, moves, rate, x, labels[s], weights[s], *memory)
        losses.append(loss)
    return theta, torch.stack(losses, 1)


class Stacked:
    """Training of all clients in one vmap step.

    The whole training of a cohort is one recorded program where that pays.
    """

    def __init__(
        self, model: FlatModel, local: LocalTraining, samples: Samples, settings: EngineSettings, traits: Traits
    ) -> None:
        self.model, self.local, self.samples, self.traits = model, local, samples, traits
        cuda = model.device.type == "cuda"
        self._precision = "ieee" if settings.precision == "float32" else settings.precision
        self._triton = stacked_conv.available(model.device, model.dtype)
        self._captured = Captured(model.device) if cuda and settings.graphs else None
        # Images that are read from a disk are not tensor operations.
        self._recorded = None if cuda or not isinstance(samples.x, Tensor) else Recorded()
        self._steps = {ragged: self._stack(ragged) for ragged in (False, True)}

    def _stack(self, ragged: bool) -> Step:
        if self._triton:
            # BatchNorm under vmap refuses images with the channels innermost.
            return triton_step(self.model, self.local, ragged, self._precision, channels_last=not self.traits.batch_norm)
        step = local_step(self.model, self.local, ragged)
        return StackedStep(step) if self.model.device.type == "cpu" else torch.func.vmap(step, randomness="different")

    def __call__(
        self, ids: Tensor, keys: Tensor, models: Tensor, which: Tensor, bounds: Bounds, inputs: RoundInputs
    ) -> tuple[Tensor, Reading]:
        """Train ids [n] with keys [n] from models[which].

        Returns theta [n, D], and losses and sums of theta [n, S + 1].
        """
        # In one piece: each way to a GPU takes its time.
        who = torch.stack([ids, keys, which]).to(self.model.device, non_blocking=True)
        present = inputs.rows(who[2]).present

        def program(who: Tensor, start: Tensor, *changing: Tensor) -> tuple[Tensor, Tensor]:
            mine = RoundInputs(**dict(zip(present, changing, strict=True)))
            step = self._steps[bounds.ragged]
            theta, losses = run_steps(step, self.local, self.samples, bounds, who[0], who[1], start, mine)
            return theta, torch.cat([losses, theta.sum(1, keepdim=True)], 1)  # all that the host reads, in one piece

        arguments = (who[:2], models.index_select(0, who[2]), *present.values())
        key = (len(ids), bounds, *present)  # what is present, not its values
        with torch.no_grad():
            if self._captured is not None:
                theta, report = self._captured(key, program, *arguments)
                theta = theta.clone()  # the recording will write there again
            elif self._recorded is not None and bounds.steps <= FEW_STEPS:
                theta, report = self._recorded(key, program, *arguments)
            else:
                theta, report = program(*arguments)
        return theta, Reading(report)


class OneByOne:
    """Training of one client after the other.

    Or one per worker process; without padding, since clients are not stacked.
    """

    def __init__(self, model: FlatModel, local: LocalTraining, samples: Samples, traits: Traits, workers: int) -> None:
        self.model, self.local, self.samples, self.traits = model, local, samples, traits
        self._step = local_step(model, local, ragged=False, copies=model.device.type == "cuda", grad=lone_grad)
        # On a CPU, convolutions and pooling are faster with the channels innermost.
        self._channels_last = traits.convolutional and model.device.type == "cpu"
        self._workers = Workers(workers, self.single, model) if workers else None

    def __call__(
        self, ids: Tensor, keys: Tensor, models: Tensor, which: Tensor, bounds: Bounds, inputs: RoundInputs
    ) -> tuple[Tensor, Reading]:
        """Train ids [n] with keys [n] from models[which].

        Returns theta [n, D], and losses and sums of theta [n, S + 1].
        """
        jobs = list(zip(ids.tolist(), keys.tolist(), which.tolist(), strict=True))
        # Workers are started before there is anything large here that they would inherit.
        results = (self._workers or self._in_turn)(jobs, models, inputs)
        theta = models.new_full((len(ids), models.shape[1]), torch.nan)
        losses = torch.full((len(ids), bounds.steps), torch.nan, dtype=models.dtype)
        for i, model, loss in results:
            theta[i], losses[i, : len(loss)] = model, loss.cpu()
        return theta, Reading(torch.cat([losses, theta.sum(1, keepdim=True).cpu()], 1))

    def _in_turn(self, jobs: list[Job], models: Tensor, inputs: RoundInputs) -> Iterator[tuple[int, Tensor, Tensor]]:
        for i, (client, key, model) in enumerate(jobs):
            yield i, *self.single(client, key, models[model], inputs.row(model))

    def single(self, client: int, key: int, start: Tensor, inputs: RoundInputs) -> tuple[Tensor, Tensor]:
        """Train one client from start [D].

        With one row of inputs -> theta [D], losses [S]; NaN if its data cannot train the model.
        """
        bounds = Bounds.of(self.local, self.samples.sizes[client : client + 1].cpu())
        ids, keys = torch.tensor([[client], [key]], device=start.device)
        devices = [start.device] if start.device.type == "cuda" else []
        with torch.random.fork_rng(devices, enabled=self.traits.dropout):
            if self.traits.dropout:
                torch.manual_seed(key)  # Dropout draws from the global generator
            try:
                theta, losses = run_steps(self._lone_step, self.local, self.samples, bounds, ids, keys, start[None], inputs)
            except InputError:  # samples that cannot be read, which no other client makes up for
                raise
            except ValueError as error:  # BatchNorm refuses to learn from a single value
                log.warning("client %d, with %d samples per batch, cannot train this model: %s", client, bounds.width, error)
                return torch.full_like(start, torch.nan), start.new_full((bounds.steps,), torch.nan)
        return theta[0], losses[0]

    def _lone_step(self, *stacked: Tensor) -> tuple[Tensor, ...]:
        theta, anchor, moves, rate, x, y, w, *memory = (t[0] for t in stacked)
        if self._channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return tuple(t[None] for t in self._step(theta, anchor, moves, rate, x, y, w, *memory))
