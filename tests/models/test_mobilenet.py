"""MobileNetV2: the state of torchvision's published weights, and the reading of such files."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.models import mobilenet_v2

BATCHNORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
LAYOUT = {
    "features.0.0.weight": (32, 3, 3, 3),
    "features.0.1.running_var": (32,),
    "features.1.conv.0.0.weight": (32, 1, 3, 3),
    "features.1.conv.0.1.num_batches_tracked": (),
    "features.1.conv.1.weight": (16, 32, 1, 1),
    "features.1.conv.2.bias": (16,),
    "features.2.conv.0.0.weight": (96, 16, 1, 1),
    "features.2.conv.1.0.weight": (96, 1, 3, 3),
    "features.2.conv.1.1.running_mean": (96,),
    "features.2.conv.2.weight": (24, 96, 1, 1),
    "features.2.conv.3.weight": (24,),
    "features.7.conv.2.weight": (64, 192, 1, 1),
    "features.14.conv.0.0.weight": (576, 96, 1, 1),
    "features.17.conv.2.weight": (320, 960, 1, 1),
    "features.18.0.weight": (1280, 320, 1, 1),
    "features.18.1.weight": (1280,),
    "classifier.1.weight": (1000, 1280),
    "classifier.1.bias": (1000,),
}


@pytest.fixture(scope="module")
def published() -> dict[str, Tensor]:
    """Stands in for the published file: other values than a fresh model has."""
    state = mobilenet_v2((3, 224, 224), 1000).state_dict()
    return {k: torch.full_like(v, i % 7) for i, (k, v) in enumerate(state.items())}


def save(state: dict[str, Tensor], path: Path) -> str:
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return str(path)


def test_state_has_the_published_layout() -> None:
    state = mobilenet_v2((3, 224, 224), 1000).state_dict()
    assert len(state) == 314
    assert {k: tuple(state[k].shape) for k in LAYOUT} == LAYOUT
    # In order: a stem, 17 blocks, a last convolution, the classifier.
    assert list(dict.fromkeys(".".join(k.split(".")[:2]) for k in state)) == [f"features.{i}" for i in range(19)] + [
        "classifier.1"
    ]
    assert list(state)[:6] == [f"features.0.{n}" for n in ("0.weight", *(f"1.{b}" for b in BATCHNORM))]


def test_strides_halve_five_times() -> None:
    features = mobilenet_v2((3, 64, 64), 2).eval().get_submodule("features")
    assert features(torch.zeros(1, 3, 64, 64)).shape == (1, 1280, 2, 2)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_published_weights_load_with_a_new_head(published: dict[str, Tensor], suffix: str, tmp_path: Path) -> None:
    path = save(published, tmp_path / f"imagenet{suffix}")
    state = mobilenet_v2((3, 64, 64), 9, weights=path).state_dict()
    assert all(torch.equal(v, published[k]) for k, v in state.items() if not k.startswith("classifier"))
    assert state["classifier.1.weight"].shape == (9, 1280)
    same = mobilenet_v2((3, 64, 64), 1000, weights=path).state_dict()
    assert all(torch.equal(v, published[k]) for k, v in same.items())


def test_files_without_step_counters_load(published: dict[str, Tensor], tmp_path: Path) -> None:
    lean = {k: v for k, v in published.items() if not k.endswith("num_batches_tracked")}
    state = mobilenet_v2((3, 64, 64), 9, weights=save(lean, tmp_path / "lean.pth")).state_dict()
    assert all(torch.equal(state[k], v) for k, v in lean.items() if not k.startswith("classifier"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features.2.conv.3.bias": None}, r"features\.2\.conv\.3\.bias is missing"),
        (
            {"features.5.conv.2.weight": torch.zeros(3)},
            r"features\.5\.conv\.2\.weight has shape \(3,\) instead of \(32, 192, 1, 1\)",
        ),
        ({"classifier.1.weight": torch.zeros(9, 8)}, r"classifier\.1\.weight has shape \(9, 8\)"),
        ({"epoch": torch.zeros(1)}, "epoch is not part of the network"),
    ],
)
def test_a_misfit_names_the_first_wrong_key(
    published: dict[str, Tensor], change: dict[str, Tensor | None], message: str, tmp_path: Path
) -> None:
    state = {k: v for k, v in {**published, **change}.items() if v is not None}
    with pytest.raises(InputError, match=message):
        mobilenet_v2((3, 64, 64), 9, weights=save(state, tmp_path / "wrong.safetensors"))


def test_grey_images_do_not_fit_colour_weights(published: dict[str, Tensor], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"features\.0\.0\.weight has shape"):
        mobilenet_v2((1, 64, 64), 9, weights=save(published, tmp_path / "colour.pth"))


class Trap:
    """Unpickled without care, this would create a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str, str], object], tuple[str, str]]:
        return open, (self.path, "w")


def test_a_malicious_file_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "trap.pth").write_bytes(pickle.dumps(Trap(str(tmp_path / "sprung"))))
    torch.save(Trap(str(tmp_path / "sprung")), tmp_path / "trap2.pth")
    for name in ("trap.pth", "trap2.pth"):
        with pytest.raises(InputError, match="cannot be read"):
            mobilenet_v2((3, 64, 64), 9, weights=str(tmp_path / name))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["empty.pth", "empty.safetensors"])
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match="cannot be read"):
        mobilenet_v2((3, 64, 64), 9, weights=str(tmp_path / name))


def test_absent_foreign_and_nested_files_are_refused(published: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save({"state_dict": published}, tmp_path / "nested.pth")
    for name, message in [("absent.pth", "no file"), ("weights.h5", r"\.pth or \.safetensors"), ("nested.pth", "state_dict")]:
        with pytest.raises(InputError, match=message):
            mobilenet_v2((3, 64, 64), 9, weights=str(tmp_path / name))
