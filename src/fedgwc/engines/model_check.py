"""A check that a model fits the data, before any training.

Without it the error would come from the middle of a round.
"""

from __future__ import annotations

import torch
from torch import nn

from fedgwc.core.errors import InputError


def check_fits(module: nn.Module, shape: tuple[int, ...], n_classes: int) -> None:
    """Refuse a module that does not score a sample of `shape` for each class."""
    if not isinstance(module, nn.Module):
        raise InputError(f"the model must be a torch module, an instance, got {module!r}")
    modes = {layer: layer.training for layer in module.modules()}  # single layers may be frozen in evaluation mode
    any_of_it = next(module.parameters(), torch.zeros(()))
    module.eval()
    try:
        with torch.no_grad():
            scores = module(torch.zeros(1, *shape, device=any_of_it.device, dtype=any_of_it.dtype))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"the model cannot take samples of shape {shape}: {why}; give one that is built for them") from error
    finally:
        for layer, training in modes.items():
            layer.training = training
    if not isinstance(scores, torch.Tensor) or scores.ndim != 2 or len(scores) != 1 or scores.shape[1] < n_classes:
        got = f"shape {tuple(scores.shape)}" if isinstance(scores, torch.Tensor) else f"a {type(scores).__name__}"
        raise InputError(
            f"the model must give [samples, classes] scores, for one sample of these data [1, {n_classes}], and gave {got}"
        )
