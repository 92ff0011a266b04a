"""The loop that everybody writes first: a copy of the model and a DataLoader per client. What speed is measured against."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fedgwc.data import Federation
from fedgwc.local import LocalTraining


def train_cohort(federation: Federation, module: nn.Module, local: LocalTraining, clients: list[int]) -> list[dict[str, Tensor]]:
    """Each client's state dict after local training."""
    states = []
    for k in clients:
        rows = torch.from_numpy(federation.train[k])
        x = federation.x[rows]
        x = x.float() / 255 if x.dtype == torch.uint8 else x
        batch = min(local.batch, len(rows))
        loader = DataLoader(TensorDataset(x, federation.y[rows]), batch, shuffle=True, drop_last=True)
        model = copy.deepcopy(module).train()
        optimiser = torch.optim.SGD(model.parameters(), local.lr, weight_decay=local.weight_decay)
        done = 0
        while done < (local.steps or 1):
            for images, labels in loader:
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(images), labels).backward()
                optimiser.step()
                done += 1
                if done == local.steps:
                    break
        states.append(model.state_dict())
    return states
