"""Nodes with client apps of a user's own: one node is one client, and a model is a dictionary of arrays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Algorithm
from fedgwc.core.settings import plain
from fedgwc.core.types import Clustering, Ids
from fedgwc.flower.checks import UNREADABLE, Invalid
from fedgwc.flower.engine import FlowerEngine
from fedgwc.flower.identity import DataDescription
from fedgwc.flower.mailbox import Outgoing
from fedgwc.flower.means import read_scalars, robust_means
from fedgwc.flower.options import Options
from fedgwc.flower.private_server import PrivateLosses
from fedgwc.flower.site import NodesSite
from fedgwc.flower.state_dicts import StateDictWire, only_metrics, read_identity
from fedgwc.flower.wire import Task
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.formats import FORMAT

log = logging.getLogger("fedgwc")
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class StateDictSite(NodesSite):
    """The clients of a Flower strategy, and the `Result` that it returns."""

    def __init__(
        self,
        algorithm: Algorithm[Any],
        seed: int,
        grid: Grid,
        options: Options,
        wire: StateDictWire,
        initial_arrays: ArrayRecord,
        evaluate_fn: Evaluate | None,
        private: PrivateLosses | None,
    ) -> None:
        super().__init__(grid, options, read_identity, DataDescription())
        self.wire, self.initial_arrays, self.evaluate_fn, self.private = wire, initial_arrays, evaluate_fn, private
        shapes = [[e.name, list(e.shape)] for e in wire.entries]
        self.job = {"format": FORMAT, "algorithm": plain(algorithm), "seed": seed, "model": shapes}
        self.result, self.models = Result(), list[ArrayRecord]()
        self.last = 0  # the last round

    def build_engine(self) -> FlowerEngine:
        return FlowerEngine(self.grid, self.roster, self.wire, self.options, self.private)

    def config(self) -> dict[str, Any]:
        return {"experiment": self.job, "flower": asdict(self.options)}

    def initial(self) -> Tensor:
        model = self.wire.vector(self.initial_arrays)
        self._evaluate_at_server(0, model[None])  # as Flower's strategies do; a mistake in evaluate_fn then costs no round
        return model

    def evaluate(self, number: int, clustering: Clustering) -> dict[str, Any]:
        """Fill the result's metrics of the round, under Flower's own keys."""
        known = {} if np.isnan(self.engine.median_loss) else {"train_loss": self.engine.median_loss}  # private ones are unknown
        self.result.train_metrics_clientapp[number] = MetricRecord({**known, "num-clients": self.engine.n_answered})
        self._evaluate_at_server(number, clustering.models)
        self.last = number
        return super().evaluate(number, clustering)

    def _evaluate_at_server(self, number: int, models: Tensor) -> None:
        """Call the user's function on every cluster's model, at the server."""
        if self.evaluate_fn is None:
            return
        found = MetricRecord()
        for i, theta in enumerate(models):
            for key, value in (self.evaluate_fn(number, self.wire.arrays(theta)) or {}).items():
                found[f"cluster-{i}.{key}"] = _metric(key, value)
        self.result.evaluate_metrics_serverapp[number] = found

    def finish(self, folder: RunFolder | None, clustering: Clustering, failures: Ids) -> None:
        self.models = [self.wire.arrays(theta) for theta in clustering.models]
        largest = int(np.bincount(clustering.labels, minlength=len(self.models)).argmax())
        self.result.arrays = self.models[largest]
        self.result.evaluate_metrics_clientapp[self.last] = self._evaluate_at_clients(clustering)
        self.log_end(clustering)

    def labels_of(self, clustering: Clustering) -> dict[str, int]:
        """Return each client's cluster, by the client's name."""
        return {name: int(row) for name, row in zip(self.roster.names, clustering.labels, strict=True)}

    def _evaluate_at_clients(self, clustering: Clustering) -> MetricRecord:
        """Average the clients' own test metrics of their clusters' models."""
        here = self.roster.available()
        tasks = [Task(int(k), self.roster.names[k], int(clustering.labels[k])) for k in here]
        questions = self.wire.evaluate(tasks, clustering.models, "test", self.last)
        outgoing = [Outgoing(self.roster.node[q.tasks[0].name], q.kind, q.content) for q in questions]
        replies = self.engine.mailbox.exchange(outgoing, self.options.deadline, str(self.last))
        reports: dict[str, dict[str, float]] = {}
        for task, reply in zip(tasks, replies, strict=True):
            if reply is None or (isinstance(reply, Message) and not (reply.has_content() and reply.content.metric_records)):
                continue  # it is away, or its app has none
            try:
                if isinstance(reply, Invalid):
                    raise reply
                reports[task.name] = read_scalars(only_metrics(reply.content))
            except (Invalid, *UNREADABLE) as reason:
                log.warning("dropped the test metrics of client %s: %.300s", task.name, reason)
        return MetricRecord({**robust_means(reports)})


def _metric(key: str, value: Any) -> Any:
    """Convert numbers of numpy and torch for Flower's records."""
    if isinstance(value, int | float | list) and not isinstance(value, bool):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"evaluate_fn must return numbers, or lists of them; {key} is {value!r:.60}") from None
