"""`fedgwc assign`: the cluster that fits a new client."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fedgwc.core.errors import InputError
from fedgwc.data.federation import Federation
from fedgwc.data.rows import Rows
from fedgwc.data.sources.client_file import load
from fedgwc.engines.simulator import Simulator
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.saved_models import Inputs, inputs_of, model_files, network_of, with_weights
from fedgwc.runs.tables import Table, show
from fedgwc.training.flat_model import FlatModel


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
    """Return each cluster's loss and accuracy on the client's training data.

    With its model file.
    """
    config = RunFolder(run).config()
    files = list(model_files(run).values())
    federation = _client(data, inputs_of(config))
    module = network_of(config)
    engine = Simulator(federation, module)
    models = torch.stack([FlatModel(with_weights(module, f)).vector() for f in files])
    n = len(files)
    scores = engine.evaluate(np.zeros(n, np.int64), models, np.arange(n), "train")
    return files, scores.loss.tolist(), (scores.correct.sum(1) / scores.total.sum(1)).tolist()


def _client(data: Path, inputs: Inputs) -> Federation:
    """Build a federation of the new client alone.

    Its data are prepared as the federation's were.
    """
    table = load(data, ("x", "y"))
    x, y = torch.from_numpy(table["x"]), torch.from_numpy(table["y"].astype(np.int64))
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise InputError(f"{data}: x holds NaN or infinite values; clean the data first")
    if tuple(x.shape[1:]) != inputs.shape:
        raise InputError(f"{data} has samples of shape {tuple(x.shape[1:])}, but this run's have {inputs.shape}")
    rows = Rows.of([np.arange(len(y))])
    x = x if x.dtype == torch.uint8 else x.to(torch.float32)
    return Federation(x, y, rows, rows, inputs.n_classes, mean=inputs.mean, std=inputs.std)
