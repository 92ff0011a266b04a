"""A site whose clients are a federation in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from fedgwc.core.protocols import Engine
from fedgwc.core.text import readable
from fedgwc.core.types import Clustering, Ids
from fedgwc.data.federation import Federation
from fedgwc.engines.pool import Member
from fedgwc.engines.simulator import Simulator
from fedgwc.metrics.classification import accuracy, balanced_accuracy, weighted_accuracy
from fedgwc.metrics.table import Evaluated, evaluate
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.recording import save_models
from fedgwc.runs.site import Clients, Site
from fedgwc.runs.versions import versions


def evaluate_clustering(clustering: Clustering, engine: Engine, federation: Federation) -> dict[str, float]:
    """Score each client's own model on its own test set, by all metrics of the table."""
    labels = clustering.labels
    scores = engine.evaluate(np.arange(federation.n_clients), clustering.models, labels)
    return evaluate(Evaluated(scores, labels, federation.class_counts("train"), federation.groups))


class SimulatedSite(Site[None]):
    """All clients of an experiment's federation, on one engine."""

    engine: Simulator | Member

    def __init__(self, job: Experiment) -> None:
        self.job, self.federation, self.local = job, job.federation(), job.local
        self.counts = self.federation.class_counts("train")
        self.names = readable(self.federation.client_names)
        self.notes = self.federation.notes

    def use(self, engine: Simulator | Member) -> None:
        """Choose the engine, which several runs may share."""
        self.engine, self.device = engine, engine.facts.device

    def gather(self, resumed: bool) -> None:
        """Build the engine; all clients are here."""

    @property
    def n_clients(self) -> int:
        return self.federation.n_clients

    def config(self) -> dict[str, Any]:
        f, tables = self.federation, self.job.to_json()
        about = {"n_clients": f.n_clients, "n_classes": f.n_classes, "shape": f.shape, "mean": f.mean, "std": f.std}
        chosen = {**tables, "engine": {**tables["engine"], **self.engine.facts.settings}}  # so that resuming repeats it
        described = {"experiment": chosen, "defaults": self.job.defaults(), "federation": about}
        return {**described, "notes": f.notes, "versions": versions()}

    def initial(self) -> Tensor:
        return self.job.initial(self.federation, self.engine)

    def clients(self) -> Clients:
        return Clients(self.counts.sum(1).astype(np.int64), self.counts, self.federation.groups, self.names)

    def evaluate(self, number: int, clustering: Clustering) -> dict[str, Any]:
        return {**evaluate_clustering(clustering, self.engine, self.federation)}

    def tell_failures(self, number: int, clients: Sequence[int]) -> list[str]:
        called = {client: f"client {client} ({self.names[client]})" if self.names else f"client {client}" for client in clients}
        return [f"{who} failed in round {number} (its model or loss is not finite) and was left out" for who in called.values()]

    def finish(self, folder: RunFolder | None, clustering: Clustering, failures: Ids) -> None:
        if folder is None:
            return
        save_models(folder, self.engine.model, clustering, str(self.job.tables["model"].get("name")))
        scores = self.engine.evaluate(np.arange(self.federation.n_clients), clustering.models, clustering.labels)
        folder.save_per_client(
            {
                "clients": scores.clients,
                "accuracy": accuracy(scores),
                "balanced": balanced_accuracy(scores),
                "weighted": weighted_accuracy(scores, self.counts[scores.clients]),
                "failures": failures[scores.clients],
            }
        )
