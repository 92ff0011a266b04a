"""What a client does: some steps of SGD on its own minibatches, from the model it was sent.

A model is one vector here too. `FlatModel` maps the vector to the module's tensors and back; `sgd_step` is one step on
it, written for one client, so that an engine may call it client by client or stacked under `torch.func.vmap`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from fedgwc.core import random
from fedgwc.core.errors import InputError
from fedgwc.training.loss import weighted_cross_entropy

MOST_STEPS = 100_000  # of a round, or epochs: the samples of all of them are chosen before the first
Step = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class LocalTraining:
    """Local SGD. Give `steps` (the same for all clients) or `epochs` (as many as each client's data make).

    Minibatches are reshuffled when exhausted and the incomplete last one is dropped. A client with fewer samples than
    `batch` uses all it has in every step, and the loss of such a step is the mean over those.
    """

    steps: Annotated[int | None, "local steps, the same for all clients"] = None
    epochs: Annotated[int | None, "in place of steps: passes over each client's own data; with neither, one"] = None
    batch: Annotated[int, "samples per step; a client with fewer uses all it has"] = 64
    lr: Annotated[float, "learning rate"] = 0.01
    weight_decay: Annotated[float, "added to the gradient, times the weights"] = 0.0
    momentum: Annotated[float, "of SGD, in [0, 1); it starts anew in every round"] = 0.0
    prox: Annotated[float, "> 0: FedProx, a pull of this strength towards the model that was sent"] = 0.0

    def __post_init__(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise InputError(f"give local steps or epochs, not both; got steps={self.steps} and epochs={self.epochs}")
        for name in ("steps", "epochs"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST_STEPS:
                raise InputError(f"local {name} must be in 1..{MOST_STEPS}, got {value}")
        if self.batch < 1:
            raise InputError(f"local batch must be at least 1, got {self.batch}")
        if not 0 < self.lr < math.inf:
            raise InputError(f"local lr must be positive and finite, got {self.lr}")
        if not (0 <= self.weight_decay < math.inf and 0 <= self.prox < math.inf and 0 <= self.momentum < 1):
            raise InputError(
                "local weight_decay and prox must be >= 0 and finite and momentum in [0, 1), "
                f"got {self.weight_decay}, {self.prox} and {self.momentum}"
            )

    def batch_sizes(self, sizes: Tensor) -> Tensor:
        """[n]: samples per minibatch of each client."""
        return sizes.clamp(max=self.batch)

    def step_counts(self, sizes: Tensor) -> Tensor:
        """[n]: local steps of each client."""
        if self.steps is not None:
            return torch.full_like(sizes, self.steps)
        return (self.epochs or 1) * (sizes // self.batch_sizes(sizes))


@dataclass(frozen=True)
class Bounds:
    """The shapes that a cohort's minibatches need."""

    steps: int
    epochs: int
    longest: int  # samples of the largest client
    width: int  # samples of the largest batch
    ragged: bool  # batches are padded, or some clients make fewer steps

    @classmethod
    def of(cls, local: LocalTraining, sizes: Tensor) -> Bounds:
        """sizes [n]."""
        steps, widths = local.step_counts(sizes), local.batch_sizes(sizes)
        most, width = int(steps.max()), int(widths.max())
        even = int(widths.min()) == width and int(steps.min()) == most
        return cls(most, -(-most // int((sizes // widths).min())), int(sizes.max()), width, not even)


@dataclass(frozen=True)
class Minibatches:
    """Which of its own samples each client uses in each step."""

    places: Tensor  # [n, S, B] numbers in 0..size-1
    weights: Tensor  # [n, S, B] 1 / (real samples of the step), 0 where padded or past the client's last step
    steps: Tensor  # [n]


def minibatches(local: LocalTraining, sizes: Tensor, keys: Tensor, bounds: Bounds | None = None) -> Minibatches:
    """All minibatches of a cohort at once. sizes and keys [n]; `bounds`, at least its own, keep this free of device reads."""
    bounds = bounds or Bounds.of(local, sizes)
    width = local.batch_sizes(sizes)[:, None, None]  # [n, 1, 1]
    per_epoch = sizes[:, None] // width[:, 0]  # [n, 1]
    step = torch.arange(bounds.steps, device=sizes.device)
    within = torch.arange(bounds.width, device=sizes.device)
    shuffled = random.permutations(keys, bounds.epochs, sizes, bounds.longest)  # [n, E, longest]
    # A padded place repeats a real sample, and its weight is 0.
    start = (step // per_epoch * bounds.longest + step % per_epoch * width[:, 0])[:, :, None]  # [n, S, 1]
    places = shuffled.flatten(1).gather(1, (start + within.clamp(max=width - 1)).flatten(1)).view(len(sizes), bounds.steps, -1)
    steps = local.step_counts(sizes)
    real = (within < width) & (step < steps[:, None])[:, :, None]
    return Minibatches(places, real / width, steps)


class FlatModel:
    """A classifier as a pure function of one vector: its parameters first, then its floating-point buffers.

    The vector is what travels and what is averaged. Integer buffers stay where they are, and so does what is frozen:
    parameters with `requires_grad=False`, and the buffers of submodules in evaluation mode (a BatchNorm after `eval()`).
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> None:
        self.module = copy.deepcopy(module).to(device=device, dtype=dtype)
        if not self.module.training:  # evaluated as a whole, before it came here: no single layer is meant
            self.module.train()
        params = {k: p for k, p in self.module.named_parameters() if p.requires_grad}
        buffers = dict(self.module.named_buffers())
        fixed = {k for k in buffers if not self.module.get_submodule(k.rpartition(".")[0]).training}
        floats = {k: b for k, b in buffers.items() if b.is_floating_point() and k not in fixed}
        # Copied before each pass: a layer in training may write to them.
        self.integers = {k: b for k, b in buffers.items() if not b.is_floating_point()}
        self.param_names = tuple(params)
        self.names = (*params, *floats)
        self.shapes = [t.shape for t in (*params.values(), *floats.values())]
        self.lengths = [s.numel() for s in self.shapes]
        self.n_params = sum(self.lengths[: len(params)])
        self.size = sum(self.lengths)
        self.dtype, self.device = dtype, torch.device(device)
        if not self.n_params:
            why = "all of them are frozen" if any(True for _ in module.parameters()) else "there are none"
            raise InputError(f"{type(module).__name__} has no parameters to train, {why}; give it some that need gradients")

    def vector(self) -> Tensor:
        """[D]: the module's present state, without what is frozen."""
        state = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        return torch.cat([state[k].detach().reshape(-1) for k in self.names])

    @property
    def frozen(self) -> dict[str, Tensor]:
        """Parameters and floating-point buffers that are the same for everybody and never move."""
        state = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        return {k: t.detach() for k, t in state.items() if k not in self.names and t.is_floating_point()}

    def tensors(self, theta: Tensor, own: bool = False) -> dict[str, Tensor]:
        """Views of theta [D] in the module's own shapes; `own`: copies, which start where CUDA libraries expect tensors to."""
        pieces = theta.split(self.lengths)
        views = {k: piece.view(shape) for k, piece, shape in zip(self.names, pieces, self.shapes, strict=True)}
        return {k: v.clone() for k, v in views.items()} if own else views

    def state_dict(self, theta: Tensor) -> dict[str, Tensor]:
        """theta under the module's own state names, ready for `load_state_dict`."""
        module = copy.deepcopy(self.module)
        module.load_state_dict(self.tensors(theta.to(self.device, self.dtype)), strict=False)
        return {k: v.detach().clone().contiguous() for k, v in module.state_dict().items()}

    def logits(self, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        out: Tensor = functional_call(self.module, {**tensors, **self.integers}, (x,))
        return out

    def loss(
        self, params: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor, w: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Weighted cross-entropy, and the buffers after the forward pass as one vector."""
        # BatchNorm writes its buffers in place; clones keep this function pure.
        state = {k: b.clone() for k, b in {**buffers, **self.integers}.items()}
        out: Tensor = functional_call(self.module, {**params, **state}, (x,))
        loss = weighted_cross_entropy(out, y, w)
        flat = [state[k].reshape(-1) for k in buffers]
        return loss, torch.cat(flat) if flat else loss.new_empty(0)


def lone_grad(objective: Callable[[dict[str, Tensor]], Any], has_aux: bool = True) -> Callable[[dict[str, Tensor]], Any]:
    """`torch.func.grad` with its auxiliary output, for a process that trains a client or two and must start fast.

    It cannot be stacked, and spares the import of torch._dynamo, which takes longer than such a process' whole training.
    """

    def gradient(params: dict[str, Tensor]) -> tuple[dict[str, Tensor], tuple[Tensor, ...]]:
        leaves = {k: p.detach().requires_grad_() for k, p in params.items()}
        with torch.enable_grad():
            value, aux = objective(leaves)
        slopes = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, slopes, strict=True)), tuple(t.detach() for t in aux)

    return gradient


def gradient_of(
    model: FlatModel, own: bool = False, grad: Callable[..., Any] = grad
) -> Callable[[Tensor, Tensor, Tensor, Tensor], tuple[list[Tensor], Tensor, Tensor]]:
    """One client's (theta [D], x [B, ...], y [B], w [B]) -> (gradients in the order of theta, buffers after the pass, loss)."""

    def gradient(theta: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        tensors = model.tensors(theta, own)
        params = {k: tensors[k] for k in model.param_names}
        buffers = {k: t for k, t in tensors.items() if k not in params}

        def objective(p: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            loss, state = model.loss(p, buffers, x, y, w)
            return loss, (loss, state)

        grads, (loss, state) = grad(objective, has_aux=True)(params)
        return [grads[k] for k in model.param_names], state, loss

    return gradient


def sgd_step(
    model: FlatModel, local: LocalTraining, ragged: bool = True, own: bool = False, grad: Callable[..., Any] = grad
) -> Step:
    """One step for one client: (theta [D], velocity, anchor [D], x [B, ...], y [B], w [B]) -> (theta, velocity, loss).

    `w` holds the weight of each sample in the loss; if all are 0 the client is done and stays as it is (checked only where
    clients are `ragged`).
    `velocity` is [n_params] with local momentum and [0] without. `own` is for `FlatModel.tensors`; `grad` may be `lone_grad`.
    """
    gradient = gradient_of(model, own, grad)

    def step(theta: Tensor, velocity: Tensor, anchor: Tensor, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        grads, state, loss = gradient(theta, x, y, w)
        old = theta[: model.n_params]
        g = torch.cat([piece.reshape(-1) for piece in grads])
        if local.weight_decay:
            g = torch.add(g, old, alpha=local.weight_decay)
        if local.prox:
            g = torch.add(g, old - anchor[: model.n_params], alpha=local.prox)
        if local.momentum:
            velocity = g = torch.add(g, velocity, alpha=local.momentum)
        new = torch.sub(old, g, alpha=local.lr)
        new = torch.cat([new, state]) if len(state) else new
        if not ragged:
            return new, velocity, loss
        working = w.sum() > 0
        return torch.where(working, new, theta), velocity, torch.where(working, loss, torch.nan)

    return step
