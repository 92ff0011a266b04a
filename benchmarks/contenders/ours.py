"""FedAvg here, with whatever the engine chooses for itself."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.contenders.workloads import COHORT, Workload, asked, run
from fedgwc.algorithms.fedavg import OneGroup
from fedgwc.algorithms.method import Method
from fedgwc.core.layout import Layout
from fedgwc.core.types import Rng
from fedgwc.core.work import LocalTraining
from fedgwc.data import Federation, Rows
from fedgwc.engines.settings import EngineSettings
from fedgwc.engines.simulator import Simulator


def federation(w: Workload) -> Federation:
    clients = [w.client(k) for k in range(w.n_clients)]
    rows = Rows.of(list(np.arange(w.n_clients * w.size).reshape(w.n_clients, w.size)))
    return Federation(torch.cat([x for x, _ in clients]), torch.cat([y for _, y in clients]), rows, rows, w.n_classes)


def main() -> None:
    w = asked()
    engine = Simulator(
        federation(w), w.module(), LocalTraining(steps=w.steps, batch=w.batch, lr=w.lr), EngineSettings(device="cpu")
    )
    algorithm = Method(OneGroup(), rate=COHORT / w.n_clients)
    state, number = algorithm.init(engine.model.vector(), w.n_clients, Layout.unnamed(engine.model.size)), 0

    def one_round() -> None:
        nonlocal state, number
        number += 1
        state = algorithm.round(state, engine, Rng(0, number))

    run(w, one_round)


if __name__ == "__main__":
    main()
