"""pfl-research's FederatedAveraging; under `torchrun` it shares the cohort out among processes, as its documentation says."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from benchmarks.contenders.workloads import COHORT, asked, tell


class Clock(TrainingProcessCallback):  # type: ignore[misc]
    def __init__(self) -> None:
        self.times: list[float] = []

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        self.times.append(time.perf_counter())
        return False, Metrics()


def main() -> None:
    w = asked()
    module: Any = w.module()
    module.loss = lambda x, y: torch.nn.functional.cross_entropy(module(x), y)
    module.metrics = lambda x, y: {"loss": Weighted(module.loss(x, y).item() * len(y), len(y))}
    central = torch.optim.SGD(module.parameters(), 1.0)
    model = PyTorchModel(module, torch.optim.SGD, central)
    everybody = get_user_sampler("random", list(range(w.n_clients)))
    data = FederatedDataset(lambda k: Dataset(w.client(k), user_id=str(k)), everybody)
    total, clock = w.warm_up + w.rounds, Clock()
    FederatedAveraging().run(
        NNAlgorithmParams(central_num_iterations=total, evaluation_frequency=10**9, train_cohort_size=COHORT, val_cohort_size=0),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(local_batch_size=w.batch, local_num_epochs=1, local_learning_rate=w.lr),
        NNEvalHyperParams(local_batch_size=w.batch),
        [clock],
    )
    if int(os.environ.get("RANK", 0)) == 0:
        tell(clock.times, w)
    if torch.distributed.is_initialized():  # a process that leaves while the others still talk ends all of them
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
