"""Flower's simulation with its own FedAvg: Ray actors of one core each."""

from __future__ import annotations

import time
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.contenders.workloads import COHORT, Workload, asked, tell


def client_app(w: Workload) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = w.module()
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        x, y = w.client(int(context.node_config["partition-id"]))
        optimiser = torch.optim.SGD(model.parameters(), w.lr)
        for rows in torch.randperm(w.size).split(w.batch):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
        metrics = MetricRecord({"num-examples": w.size})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    return app


def main() -> None:
    w = asked()
    server, times = ServerApp(), list[float]()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy: Any = FedAvg(fraction_train=COHORT / w.n_clients, fraction_evaluate=0.0, min_available_nodes=w.n_clients)

        def stamp(number: int, arrays: ArrayRecord) -> None:
            if number:
                times.append(time.perf_counter())

        initial = ArrayRecord(w.module().state_dict())
        result = strategy.start(grid, initial, num_rounds=w.warm_up + w.rounds, evaluate_fn=stamp)
        assert len(result.train_metrics_clientapp) == w.warm_up + w.rounds  # a round without an answer would be fast

    run_simulation(server, client_app(w), w.n_clients, backend_config={"client_resources": {"num_cpus": 1}})
    tell(times, w)


if __name__ == "__main__":
    main()
