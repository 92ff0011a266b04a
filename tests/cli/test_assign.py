"""`fedgwc assign`: a new client gets the model of its group."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from fedgwc.data import Group, digits
from tests.cli.conftest import Command, refused


def client(path: Path, relabel: int) -> Path:
    """The data of somebody who was not in the federation."""
    federation = digits(seed=9, groups=(Group(1), Group(1, relabel=1)), train_size=60, test_size=5)
    rows = federation.train[1 if relabel else 0]
    np.savez(path, x=federation.x[rows].numpy(), y=federation.y[rows].numpy())
    return path


@pytest.mark.parametrize("relabel", [0, 1], ids=["usual", "shifted"])
def test_assign_gives_a_new_client_the_model_of_its_group(
    fedgwc: Command, run_folder: Path, tmp_path: Path, relabel: int
) -> None:
    answer = fedgwc("assign", run_folder, client(tmp_path / "new.npz", relabel))
    assert answer.code == 0, answer.err
    chosen = Path(answer.out.splitlines()[-1])
    safetensors.torch.load_file(chosen)
    rows = (run_folder / "labels.csv").read_text().splitlines()[1:]
    groups = [row.split(",")[2] for row in rows if f"cluster-{row.split(',')[1]}" == chosen.stem]
    assert max(set(groups), key=groups.count) == str(relabel)
    assert answer.out.count("<- lowest loss") == 1


def test_assign_mistakes(fedgwc: Command, run_folder: Path, tmp_path: Path) -> None:
    good = client(tmp_path / "new.npz", 0)
    refused(fedgwc("assign", tmp_path, good), "holds no run")
    refused(fedgwc("assign", run_folder, tmp_path / "none.npz"), "none.npz")
    np.savez(tmp_path / "flat.npz", x=np.zeros((3, 64), np.float32), y=np.zeros(3, int))
    refused(fedgwc("assign", run_folder, tmp_path / "flat.npz"), "this run's have (1, 8, 8)")
    np.savez(tmp_path / "labels.npz", x=np.zeros((3, 1, 8, 8), np.float32), y=np.full(3, 10))
    refused(fedgwc("assign", run_folder, tmp_path / "labels.npz"), "labels must be in 0..9")
    for x in (np.nan, np.inf):
        np.savez(tmp_path / "x.npz", x=np.full((3, 1, 8, 8), x, np.float32), y=np.zeros(3, int))
        refused(fedgwc("assign", run_folder, tmp_path / "x.npz"), f"x.npz: x holds {x}; training needs finite 32-bit numbers")
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 1, 8, 8), np.float32))
    refused(fedgwc("assign", run_folder, tmp_path / "x.npz"), "y")
    shutil.copytree(run_folder, tmp_path / "run")
    (tmp_path / "run" / "models" / "cluster-0.safetensors").write_bytes(b"half")
    refused(fedgwc("assign", tmp_path / "run", good), "does not fit this run's model")
    shutil.rmtree(tmp_path / "run" / "models")
    refused(fedgwc("assign", tmp_path / "run", good), "has no models yet")


def test_assign_never_picks_a_model_that_has_diverged(fedgwc: Command, run_folder: Path, tmp_path: Path) -> None:
    new = client(tmp_path / "new.npz", 0)
    copy = shutil.copytree(run_folder, tmp_path / "run")
    paths = sorted((copy / "models").glob("*.safetensors"))
    for path in paths:
        weights = safetensors.torch.load_file(path)
        safetensors.torch.save_file({k: torch.full_like(w, torch.nan) for k, w in weights.items()}, path)
        answer = fedgwc("assign", copy, new)
        if path != paths[-1]:
            assert Path(answer.out.splitlines()[-1]) > path  # one that has not
    refused(answer, "no model of this run has a finite loss on it")
