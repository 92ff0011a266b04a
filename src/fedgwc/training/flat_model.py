"""Modules as pure functions of one vector."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedgwc.core.errors import InputError
from fedgwc.core.layout import Layout
from fedgwc.training.loss import weighted_cross_entropy


class FlatModel:
    """A classifier as a pure function of one vector.

    Its parameters come first, then its floating-point buffers.

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
        shapes = tuple(tuple(t.shape) for t in (*params.values(), *floats.values()))
        self.layout = Layout((*params, *floats), shapes, sum(p.numel() for p in params.values()))
        self.dtype, self.device = dtype, torch.device(device)
        if not self.n_params:
            why = "all of them are frozen" if any(True for _ in module.parameters()) else "there are none"
            raise InputError(f"{type(module).__name__} has no parameters to train, {why}; give it some that need gradients")

    @property
    def size(self) -> int:
        """Count the entries of the vector, D."""
        return self.layout.size

    @property
    def n_params(self) -> int:
        """Count the entries that are parameters; buffers follow."""
        return self.layout.n_params

    def vector(self) -> Tensor:
        """Return the module's present state [D], without what is frozen."""
        state = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        return torch.cat([state[k].detach().reshape(-1) for k in self.layout.names])

    @property
    def frozen(self) -> dict[str, Tensor]:
        """Return the parameters and buffers that never move.

        They are floating-point and the same for everybody.
        """
        state = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        return {k: t.detach() for k, t in state.items() if k not in self.layout.names and t.is_floating_point()}

    def tensors(self, theta: Tensor, copies: bool = False) -> dict[str, Tensor]:
        """View theta [D] in the module's shapes.

        `copies` start where CUDA libraries expect tensors to.
        """
        names, pieces, shapes = self.layout.names, theta.split(self.layout.lengths), self.layout.shapes
        views = {k: piece.view(shape) for k, piece, shape in zip(names, pieces, shapes, strict=True)}
        return {k: v.clone() for k, v in views.items()} if copies else views

    def state_dict(self, theta: Tensor) -> dict[str, Tensor]:
        """Return theta under the module's state names, ready for `load_state_dict`."""
        module = copy.deepcopy(self.module)
        module.load_state_dict(self.tensors(theta.to(self.device, self.dtype)), strict=False)
        return {k: v.detach().clone().contiguous() for k, v in module.state_dict().items()}

    def logits(self, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        """Score x [B, ...] for each class, [B, C]."""
        out: Tensor = functional_call(self.module, {**tensors, **self.integers}, (x,))
        return out

    def loss(
        self, params: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor, w: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the weighted cross-entropy, and the buffers after the forward pass as one vector."""
        # BatchNorm writes its buffers in place; clones keep this function pure.
        state = {k: b.clone() for k, b in {**buffers, **self.integers}.items()}
        out: Tensor = functional_call(self.module, {**params, **state}, (x,))
        loss = weighted_cross_entropy(out, y, w)
        flat = [state[k].reshape(-1) for k in buffers]
        return loss, torch.cat(flat) if flat else loss.new_empty(0)
