"""The loop that everybody writes first: a copy of the model and a DataLoader per client, then the mean of the states."""

from __future__ import annotations

import copy
import random

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.contenders.workloads import COHORT, Workload, asked, run


def train(w: Workload, module: nn.Module, data: TensorDataset) -> dict[str, Tensor]:
    model = copy.deepcopy(module).train()
    optimiser = torch.optim.SGD(model.parameters(), w.lr)
    for x, y in DataLoader(data, w.batch, shuffle=True, drop_last=True):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model.state_dict()


def main() -> None:
    w = asked()
    clients, module = [TensorDataset(*w.client(k)) for k in range(w.n_clients)], w.module()

    def one_round() -> None:
        states = [train(w, module, data) for data in random.sample(clients, COHORT)]
        module.load_state_dict({k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]})

    run(w, one_round)


if __name__ == "__main__":
    main()
