"""MobileNetV2 and its published ImageNet weights."""

from __future__ import annotations

import pickletools
import zipfile
from itertools import chain
from pathlib import Path
from typing import Annotated

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fedgwc.core.errors import InputError, NotHere
from fedgwc.io.zips import members
from fedgwc.models.small import image_shape

# Table 2 of Sandler et al. (2018): expansion, channels, blocks, stride of the first block
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
WIDTH = 1280  # features before the classifier
PICKLES = 5  # at the head of a .pth file from before torch packed them as zip
LONGEST_NAME = 1000
HEAD = ("classifier.1.weight", "classifier.1.bias")

Weights = Annotated[str | None, "file to start from, .pth or .safetensors, such as torchvision's; unset: anew"]
Dropout = Annotated[float, "before the classifier, in [0, 1); 0 lets clients be stacked"]


def mobilenet_v2(shape: tuple[int, ...], n_classes: int, *, weights: Weights = None, dropout: Dropout = 0.2) -> nn.Module:
    """MobileNetV2 at width 1.0 with BatchNorm (Sandler et al., 2018).

    It has 3,504,872 parameters at 3 channels and 1000 classes.

    The state has the names and shapes of torchvision's, so its published weights load from `weights`, a `.pth` or
    `.safetensors` file; where the file has another number of classes, the classifier starts anew. `dropout` is that
    before the classifier; 0 lets an engine stack clients.
    """
    channels, _, _ = image_shape("mobilenet_v2", shape)
    if not 0 <= dropout < 1:
        raise InputError(f"mobilenet_v2 dropout must be in [0, 1), got {dropout}; 0 turns it off")
    model = MobileNetV2(channels, n_classes, dropout)
    if weights is not None:
        _load(model, Path(weights).expanduser())
    return model


class MobileNetV2(nn.Module):
    """MobileNetV2 with its layers named as in torchvision."""

    def __init__(self, channels: int, n_classes: int, dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv(channels, 32, 3, stride=2)]
        n_in = 32
        for expansion, n_out, blocks, first in STAGES:
            for b in range(blocks):
                layers.append(InvertedResidual(n_in, n_out, first if b == 0 else 1, expansion))
                n_in = n_out
        self.features = nn.Sequential(*layers, _conv(n_in, WIDTH, 1))
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(WIDTH, n_classes))
        self.apply(_initialise)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return out


class InvertedResidual(nn.Module):
    """An inverted residual: widen, convolve each channel by itself, narrow.

    The input is added where the shapes agree.
    """

    def __init__(self, n_in: int, n_out: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = n_in * expansion
        widen = [] if expansion == 1 else [_conv(n_in, wide, 1)]
        depthwise = _conv(wide, wide, 3, stride=stride, groups=wide)
        self.conv = nn.Sequential(*widen, depthwise, nn.Conv2d(wide, n_out, 1, bias=False), nn.BatchNorm2d(n_out))
        self.adds = stride == 1 and n_in == n_out

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x)
        return x + out if self.adds else out


def _conv(n_in: int, n_out: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(n_in, n_out, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(n_out), nn.ReLU6())


def _initialise(module: nn.Module) -> None:
    """Initialise the network as usual.

    He's normal for convolutions, a narrow normal for the classifier.
    """
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out")
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0, 0.01)
        nn.init.zeros_(module.bias)


def _load(model: MobileNetV2, path: Path) -> None:
    """Fill `model` from a file of weights.

    Every entry must fit, except the classifier of another number of classes.
    """
    found, wanted = _read(path), model.state_dict()
    if _other_classes(found, wanted):
        found.update({key: wanted[key] for key in HEAD})
    for key in [*wanted, *found]:
        if key not in found and not key.endswith("num_batches_tracked"):  # an unused counter, which some files lack
            raise _misfit(path, f"{key} is missing")
        if key not in wanted:
            raise _misfit(path, f"{key} is not part of the network")
        if key in found and found[key].shape != wanted[key].shape:
            raise _misfit(path, f"{key} has shape {tuple(found[key].shape)} instead of {tuple(wanted[key].shape)}")
    model.load_state_dict(found, strict=False)


def _other_classes(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> bool:
    """Tell whether the file's classifier is for other classes."""
    weight, bias = (found.get(key) for key in HEAD)
    if weight is None or bias is None or weight.ndim != 2 or weight.shape[1] != WIDTH or bias.shape != weight.shape[:1]:
        return False
    return weight.shape != wanted[HEAD[0]].shape


def _misfit(path: Path, what: str) -> InputError:
    return InputError(
        f"{path} does not hold MobileNetV2 weights in torchvision's layout: {what}; "
        "give the published mobilenet_v2 file itself, or a model of this network that fedgwc saved"
    )


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix not in (".pth", ".pt", ".safetensors"):
        raise InputError(f"model weights must be a .pth or .safetensors file, got {path}; convert or rename it")
    if not path.is_file():
        raise NotHere(f"there is no file of model weights at {path}; give its path, or leave weights out to start anew")
    try:
        state = load_file(path) if path.suffix == ".safetensors" else _load_pth(path)
    except Exception as error:  # a damaged or foreign file fails in too many ways to list
        raise InputError(
            f"{path} cannot be read as model weights ({type(error).__name__}): it is damaged or holds more than tensors; "
            "download it again, or save the model's state_dict() as safetensors"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise InputError(f"{path} holds no plain table of tensors; save the model's state_dict() and nothing else")
    return dict(state)


def _load_pth(path: Path) -> object:
    """Load PyTorch weights after a check of their names.

    Names are short there, and torch takes minutes over one of 100,000 letters.
    """
    with path.open("rb") as stream:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                inside = members(path, archive)
                pickles = [archive.read(info) for name, info in inside.items() if name.endswith("data.pkl")]
            operations = chain.from_iterable(map(pickletools.genops, pickles))
        else:
            operations = chain.from_iterable(pickletools.genops(stream) for _ in range(PICKLES))
        if any(isinstance(value, str) and len(value) > LONGEST_NAME for _, value, _ in operations):
            raise ValueError("it holds a name that is no name")
    return torch.load(path, map_location="cpu", weights_only=True)
