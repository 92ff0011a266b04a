"""A module as a pure function of one vector, which is what travels and what is averaged."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedgwc.core.errors import InputError
from fedgwc.training.loss import weighted_cross_entropy


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
