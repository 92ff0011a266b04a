"""The choice of how a cohort runs, by model and machine."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import nn

from fedgwc.engines.settings import EngineSettings, How, cores

log = logging.getLogger("fedgwc")


@dataclass(frozen=True)
class Traits:
    """Properties of a model that decide how its clients can be run."""

    convolutional: bool
    batch_norm: bool
    dropout: bool


def traits_of(module: nn.Module) -> Traits:
    """Read the traits of a module as it trains.

    Layers in evaluation mode have no batch statistics and draw nothing.
    """
    layers = list(module.modules())
    return Traits(
        any(isinstance(m, nn.modules.conv._ConvNd) for m in layers),
        any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training for m in layers),
        any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 and m.training for m in layers),
    )


def choose(settings: EngineSettings, traits: Traits, device: torch.device) -> tuple[How, int, int]:
    """Choose (how, threads, workers), as measured in docs/speed.md."""
    how = _how(settings, traits, device)
    workers = (settings.workers or cores()) if how == "workers" else 0
    # A second thread in the short operators of a small stacked model only waits, and if another process holds its core
    # everything waits for it. Workers have a core each.
    threads = settings.threads or (cores() if how == "one-by-one" and traits.convolutional else 1)
    return how, threads, workers


def most_stacked(size: int, device: torch.device) -> int:
    """Return how many models of `size` floats to stack at once.

    A step holds about six copies of their models: sent, present and next ones, gradients in parts and as a whole. On a CPU
    they should stay in its cache (measured in docs/speed.md), on a GPU in its memory.
    """
    return max(1, (1 << (30 if device.type == "cuda" else 20)) // size)


def _how(settings: EngineSettings, traits: Traits, device: torch.device) -> How:
    if traits.dropout and not settings.stack_random and settings.how in ("auto", "stacked"):
        if settings.how == "stacked":
            log.warning("the model uses Dropout, so clients run one by one; engine.stack_random=true stacks them all the same")
        # Whole clients in parallel keep their random streams; on a GPU there is nothing to share out.
        return "workers" if device.type == "cpu" and traits.convolutional and cores() > 1 else "one-by-one"
    if settings.how != "auto":
        return settings.how
    if device.type == "cuda" or not traits.convolutional:
        return "stacked"  # bound by overhead, which stacking removes
    # Convolutions on a CPU are bound by arithmetic: keep every core busy with whole clients.
    return "workers" if cores() > 1 else "one-by-one"
