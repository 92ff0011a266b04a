"""`fedgwc assign`: which cluster a new client belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError

from fedgwc.commands.tables import Table, show
from fedgwc.data.client_file import load
from fedgwc.data.federation import Federation
from fedgwc.data.rows import Rows
from fedgwc.engines.simulate import Simulator
from fedgwc.errors import InputError
from fedgwc.experiment import experiment
from fedgwc.local import FlatModel
from fedgwc.record import RunFolder


def assign_command(run: Path, data: Path) -> None:
    models, losses, accuracies = assign(run, data)
    if not np.isfinite(losses).any():
        raise InputError(f"{data} cannot be assigned: no model of this run has a finite loss on it")
    best = int(np.nanargmin(losses))
    mark = ["" if i != best else "<- lowest loss" for i in range(len(models))]
    rows = [[m.stem, f"{loss:.4f}", f"{100 * a:.1f}", t] for m, loss, a, t in zip(models, losses, accuracies, mark, strict=True)]
    show(Table(["cluster", "loss", "accuracy %", ""], rows))
    print(f"\n{models[best]}")


def assign(run: Path, data: Path) -> tuple[list[Path], list[float], list[float]]:
    """Each cluster's model file with its loss and accuracy on the client's training data."""
    folder = RunFolder(run)
    config = folder.config()
    files = sorted((run / "models").glob("cluster-*.safetensors"), key=lambda p: int(p.stem.split("-")[1]))
    if not files:
        raise InputError(f"{run} has no models yet; they are written when a run is finished")
    federation = _client(data, config.get("federation", {}))
    module = experiment(config["experiment"]).begun_with(config).module(federation)
    engine = Simulator(federation, module)
    models = torch.stack([_vector(module, f) for f in files])
    n = len(files)
    scores = engine.evaluate(np.zeros(n, np.int64), models, np.arange(n), "train")
    return files, scores.loss.tolist(), (scores.correct.sum(1) / scores.total.sum(1)).tolist()


def _client(data: Path, about: dict[str, Any]) -> Federation:
    """The new client alone, its data prepared as the federation's were."""
    table = load(data, ("x", "y"))
    x, y = torch.from_numpy(table["x"]), torch.from_numpy(table["y"].astype(np.int64))
    try:
        shape, n_classes = tuple(about["shape"]), int(about["n_classes"])
        mean, std = (tuple(map(float, about[key])) for key in ("mean", "std"))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"the run's config.json does not describe its federation: {error!r}") from None
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise InputError(f"{data}: x holds NaN or infinite values; clean the data first")
    if tuple(x.shape[1:]) != shape:
        raise InputError(f"{data} has samples of shape {tuple(x.shape[1:])}, but this run's have {shape}")
    rows = Rows.of([np.arange(len(y))])
    x = x if x.dtype == torch.uint8 else x.to(torch.float32)
    return Federation(x, y, rows, rows, n_classes, mean=mean, std=std)


def _vector(module: torch.nn.Module, path: Path) -> torch.Tensor:
    try:
        module.load_state_dict(safetensors.torch.load_file(path))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise InputError(f"{path} does not fit this run's model: {str(error).splitlines()[0]}") from None
    return FlatModel(module).vector()
