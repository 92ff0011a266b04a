"""Models of a finished run, rebuilt from its folder alone."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from fedgwc.core.errors import InputError
from fedgwc.io.files import regular_file
from fedgwc.runs.experiment import experiment
from fedgwc.runs.folder import RunFolder

_MODEL = re.compile(r"cluster-([0-9]{1,9})\.safetensors")


@dataclass(frozen=True)
class Inputs:
    """The form of a run's samples."""

    shape: tuple[int, ...]
    n_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


class ClusterModel(nn.Module):
    """A cluster's network with its inputs' normalisation.

    It takes samples as data files have them and prepares them as in training.
    """

    def __init__(self, network: nn.Module, inputs: Inputs) -> None:
        super().__init__()
        self.network = network
        per_channel = (-1, *[1] * (len(inputs.shape) - 1))
        self.mean = nn.Buffer(torch.tensor(inputs.mean or (0.0,)).view(per_channel), persistent=False)
        self.std = nn.Buffer(torch.tensor(inputs.std or (1.0,)).view(per_channel), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits [B, C] of samples x [B, ...], bytes or numbers."""
        x = x / 255 if x.dtype == torch.uint8 else x.to(self.mean.dtype)
        out: Tensor = self.network((x - self.mean) / self.std)
        return out


def load_model(run: str | os.PathLike[str], cluster: int) -> ClusterModel:
    """Load a cluster's model from a finished run, ready to predict.

    `load_model(run, 1)(x).argmax(1)`.
    """
    config = RunFolder(Path(run)).config()
    files = model_files(Path(run))
    if cluster not in files:
        raise InputError(f"{run} has no cluster {cluster}; at its end it had {', '.join(map(str, files))}")
    return ClusterModel(with_weights(network_of(config), files[cluster]), inputs_of(config)).eval()


def model_files(run: Path) -> dict[int, Path]:
    """Find the file of each cluster's model, by the cluster's number."""
    found = ((_MODEL.fullmatch(path.name), path) for path in (run / "models").glob("*.safetensors"))  # others are not ours
    files = {int(name[1]): path for name, path in found if name}
    if not files:
        raise InputError(f"{run} has no models yet; they are written when a run is finished")
    return dict(sorted(files.items()))


def inputs_of(config: Mapping[str, Any]) -> Inputs:
    try:
        about = config["federation"]
        mean, std = (tuple(map(float, about[key])) for key in ("mean", "std"))
        shape = tuple(map(int, about["shape"]))
        channels = shape[0] if len(shape) > 1 else 1
        if not {len(mean), len(std)} <= {0, channels}:
            raise ValueError(f"{len(mean)} means and {len(std)} deviations for {channels} channels")
        return Inputs(shape, int(about["n_classes"]), mean, std)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"the run's config.json does not describe its federation: {error!r}") from None


def network_of(config: Mapping[str, Any]) -> nn.Module:
    """Build a run's network, untrained.

    Only [model] is read: what else another version wrote there does not matter here.
    """
    settings = config["experiment"].get("model", {})
    if isinstance(settings, Mapping):  # where training started: a file that may be elsewhere by now
        settings = {key: value for key, value in settings.items() if key != "weights"}
    return experiment({"model": settings}).begun_with(config).module(inputs_of(config))


def with_weights(network: nn.Module, path: Path) -> nn.Module:
    """Load the weights of a model's file into the network."""
    try:
        network.load_state_dict(safetensors.torch.load_file(regular_file(path)))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise InputError(f"{path} does not fit this run's model: {str(error).splitlines()[0]}") from None
    return network
