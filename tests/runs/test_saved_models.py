"""The networks of a run's clusters, rebuilt from its folder."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedgwc
from fedgwc.cli.assign import assign
from fedgwc.data import DATASETS, from_arrays
from fedgwc.models import MODELS
from fedgwc.runs.experiment import experiment
from fedgwc.runs.loop import run
from fedgwc.runs.saved_models import ClusterModel, Inputs
from tests.conftest import Small

TABLES: dict[str, Any] = {
    "rounds": 3,
    "data": {"name": "coloured"},
    "model": {"name": "normed"},
    "local": {"steps": 1, "batch": 4, "lr": 0.01},
    "algorithm": {"name": "ifca", "k": 2},
}


def coloured(*, seed: int) -> Any:
    """Bytes with a mean and deviation per channel: all that has to be prepared as in training."""
    r = np.random.default_rng(seed)
    federation = from_arrays(r.integers(0, 256, (60, 3, 8, 8)).astype(np.uint8), r.integers(0, 3, 60), np.arange(60) % 4)
    return replace(federation, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))


def normed(shape: tuple[int, ...], n_classes: int, *, weights: str | None = None) -> nn.Module:
    """The smallest network that differs in evaluation mode, and may start from a file as mobilenet_v2 does."""
    network = nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 6 * 6, n_classes))
    if weights is not None:
        network.load_state_dict(torch.load(weights))
    return network


@pytest.fixture
def _coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "coloured", coloured)
    monkeypatch.setitem(MODELS, "normed", normed)


@pytest.fixture
def finished(small: Small, tmp_path: Path) -> Path:
    return run(small("ifca", rounds=4), tmp_path / "run").folder


def test_it_predicts_what_the_run_measured(finished: Path, small: Small) -> None:
    federation = small("ifca", rounds=4).federation()
    clusters = [int(line.split(",")[1]) for line in (finished / "labels.csv").read_text().splitlines()[1:]]
    known = np.load(finished / "per_client.npz")
    assert known["clients"].tolist() == list(range(federation.n_clients))
    for client, cluster in enumerate(clusters):
        model, rows = fedgwc.load_model(finished, cluster), torch.from_numpy(federation.test[client])
        right = model(federation.x[rows]).argmax(1) == federation.y[rows]
        assert right.double().mean().item() == pytest.approx(known["accuracy"][client])


@pytest.mark.usefixtures("_coloured")
def test_samples_are_prepared_as_in_training(tmp_path: Path) -> None:
    """Bytes, a mean and deviation per channel, and BatchNorm in evaluation mode."""
    job = experiment(TABLES, "trained")
    folder = run(job, tmp_path / "run").folder
    federation = job.federation()
    rows = federation.train[0]
    np.savez(tmp_path / "new.npz", x=federation.x[rows].numpy(), y=federation.y[rows].numpy())
    files, losses, _ = assign(folder, tmp_path / "new.npz")
    for path, loss in zip(files, losses, strict=True):
        model = fedgwc.load_model(folder, int(path.stem.split("-")[1]))
        logits = model(federation.x[torch.from_numpy(rows)])
        assert nn.functional.cross_entropy(logits, federation.y[torch.from_numpy(rows)]).item() == pytest.approx(loss, rel=1e-4)


def test_flat_samples_by_hand() -> None:
    model = ClusterModel(nn.Identity(), Inputs((2,), 2, (1.0,), (2.0,)))
    assert model(torch.tensor([[3.0, 5.0]])).tolist() == [[1.0, 2.0]]
    assert ClusterModel(nn.Identity(), Inputs((2,), 2, (), ()))(torch.tensor([[255, 51]], dtype=torch.uint8)).tolist() == [
        [1.0, pytest.approx(0.2)]
    ]


def test_only_the_model_and_the_data_are_read(finished: Path, tmp_path: Path) -> None:
    """A run of another version may have settings that this one does not know; the start of training may be elsewhere."""
    config = json.loads((finished / "config.json").read_text())
    config["experiment"]["algorithm"] |= {"name": "of tomorrow", "magic": 3}
    config["experiment"]["local"]["magic"] = config["experiment"]["magic"] = 3
    (finished / "config.json").write_text(json.dumps(config))
    np.savez(tmp_path / "new.npz", x=np.zeros((3, 1, 8, 8), np.float32), y=np.zeros(3, int))
    assert len(assign(finished, tmp_path / "new.npz")[0]) == 2
    assert isinstance(fedgwc.load_model(finished, 1), ClusterModel)


@pytest.mark.usefixtures("_coloured")
def test_weights_that_training_started_from_may_be_gone(tmp_path: Path) -> None:
    folder = run(experiment(TABLES, "trained"), tmp_path / "run").folder
    config = json.loads((folder / "config.json").read_text())
    config["experiment"]["model"]["weights"] = "nowhere.pth"
    (folder / "config.json").write_text(json.dumps(config))
    assert fedgwc.load_model(folder, 0).training is False


def test_mistakes(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(fedgwc.InputError, match="has no cluster 7; at its end it had 0, 1"):
        fedgwc.load_model(finished, 7)
    for name in ("cluster-x", "cluster-²", "cluster-"):  # of somebody else
        (finished / "models" / f"{name}.safetensors").touch()
    with pytest.raises(fedgwc.InputError, match="has no cluster 7; at its end it had 0, 1"):
        fedgwc.load_model(finished, 7)
    (finished / "models" / "cluster-2.safetensors").symlink_to("/dev/null")
    with pytest.raises(fedgwc.InputError, match=r"cluster-2\.safetensors is a device"):
        fedgwc.load_model(finished, 2)
    with pytest.raises(fedgwc.InputError, match="holds no run"):
        fedgwc.load_model(tmp_path, 0)
    shutil.rmtree(finished / "models")
    with pytest.raises(fedgwc.InputError, match="has no models yet"):
        fedgwc.load_model(finished, 0)
    config = json.loads((finished / "config.json").read_text())
    (finished / "models").mkdir()
    (finished / "models" / "cluster-0.safetensors").write_bytes(b"")
    config["federation"]["mean"] = [0.1, 0.2, 0.3]
    (finished / "config.json").write_text(json.dumps(config))
    with pytest.raises(fedgwc.InputError, match=r"does not describe its federation.*3 means and 0 deviations for 1 channels"):
        fedgwc.load_model(finished, 0)
    del config["federation"]["mean"]
    (finished / "config.json").write_text(json.dumps(config))
    with pytest.raises(fedgwc.InputError, match="does not describe its federation"):
        fedgwc.load_model(finished, 0)
