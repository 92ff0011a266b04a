"""Clustering for people who already have a Flower app: a `Strategy` over client apps of their own."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Result

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Algorithm, StartsFromSeveral
from fedgwc.core.settings import override
from fedgwc.flower.log_progress import LogProgress, show_log
from fedgwc.flower.options import Options
from fedgwc.flower.private_server import PrivateLosses, private_losses_for
from fedgwc.flower.state_dict_site import Evaluate, StateDictSite
from fedgwc.flower.state_dicts import StateDictWire
from fedgwc.flower.wire import Kind
from fedgwc.runs.driver import Driver
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.interrupt import PoliteInterrupt
from fedgwc.runs.site import Course

log = logging.getLogger("fedgwc")

ROUND_SECONDS = 3600.0  # for a round unless options say otherwise, as Flower's own strategies have it
ONE_MODEL_PER_CLUSTER = "this strategy keeps one model per cluster: call start()"


class Strategy(flower.Strategy):
    """Clusters the clients of a Flower app; `start` does it all.

    `algorithm` is a name of `fedgwc.ALGORITHMS` or an algorithm that trains and never evaluates (auto, fedgwc, fedavg, fesem,
    cfl), and settings are its own (rate=0.5, min_size=5, ...). `fedgwc.flower.state_dicts` says what client apps must reply. With
    `out` every round is checkpointed there, and a server that was killed goes on from it. Afterwards `models` and `labels` tell
    each cluster's model and each client's cluster.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any] | str = "auto",
        *,
        options: Options | None = None,
        out: str | os.PathLike[str] | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        chosen = ALGORITHMS.choose(algorithm) if isinstance(algorithm, str) else algorithm
        self.algorithm = override(chosen, settings, type(self).__name__)
        if isinstance(self.algorithm, StartsFromSeveral) and self.algorithm.n_models is not None:
            raise InputError("this algorithm starts from several initial models, but start() is given one; use server_app")
        self.options, self.out, self.seed = options or Options(deadline=ROUND_SECONDS), out, seed
        self._private_losses()  # refuses what does not go together
        self.models: list[ArrayRecord] = []
        self.labels: dict[str, int] = {}

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Run all rounds; the result's arrays are the largest cluster's model.

        A `timeout` is each round's deadline, in place of that of the options.
        """
        show_log()
        options = self.options if timeout is None else replace(self.options, deadline=float(timeout))
        configs: dict[Kind, Any] = {"train": dict(train_config or {}), "evaluate": dict(evaluate_config or {})}
        wire = StateDictWire.of(initial_arrays, configs, options.private_losses, options.max_steps)
        site = StateDictSite(self.algorithm, self.seed, grid, options, wire, initial_arrays, evaluate_fn, self._private_losses())
        folder = None if self.out is None else RunFolder(Path(self.out))
        resume = folder is not None and folder.has_run()
        if folder is not None and resume:
            if folder.config()["experiment"] != site.job:
                raise InputError(f"{folder.path} holds a run with other settings or another model; choose another out")
            folder.lock()
        course = Course(self.algorithm, type(self).__name__, type(self).__name__, num_rounds, self.seed)
        try:
            outcome = Driver(course, site, folder, LogProgress()).go(resume, PoliteInterrupt())
        finally:
            if folder is not None:
                folder.close()
        self.models, self.labels = site.models, site.labels_of(outcome.clustering)
        return site.result

    def _private_losses(self) -> PrivateLosses | None:
        note = Path(self.out) / "state" / "summed" if self.out is not None else None
        return private_losses_for(self.algorithm, note) if self.options.private_losses else None

    def summary(self) -> None:
        """Log the algorithm and its settings."""
        log.info("%s", self.algorithm)

    # Flower's own loop averages one model; this one has as many as it finds clusters, so `start` does not call these.

    def configure_train(self, *_: Any, **__: Any) -> Iterable[Message]:
        raise NotImplementedError(ONE_MODEL_PER_CLUSTER)

    def aggregate_train(self, *_: Any, **__: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        raise NotImplementedError(ONE_MODEL_PER_CLUSTER)

    def configure_evaluate(self, *_: Any, **__: Any) -> Iterable[Message]:
        raise NotImplementedError(ONE_MODEL_PER_CLUSTER)

    def aggregate_evaluate(self, *_: Any, **__: Any) -> MetricRecord | None:
        raise NotImplementedError(ONE_MODEL_PER_CLUSTER)
