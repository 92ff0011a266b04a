"""A site whose clients are a federation in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.core.protocols import Engine
from fedgwc.core.text import readable
from fedgwc.core.types import Clustering, Ids, Scores
from fedgwc.data.federation import Federation
from fedgwc.engines.pool import Member
from fedgwc.engines.simulator import Simulator
from fedgwc.metrics.classification import accuracy, balanced_accuracy, weighted_accuracy
from fedgwc.metrics.table import METRICS, OF_CLUSTERS, Evaluated, evaluate
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.recording import save_models
from fedgwc.runs.site import Clients, Site
from fedgwc.runs.versions import versions


def evaluate_clustering(clustering: Clustering, engine: Engine, federation: Federation) -> dict[str, float]:
    """Score each client's own model by all metrics of the table.

    On its test samples; on its validation samples as `validation_NAME`; and as `newcomers_NAME` on newcomers' test samples.
    """
    labels, clients = clustering.labels, np.arange(federation.n_clients)
    scores = engine.evaluate(clients, clustering.models, labels)
    row = evaluate(Evaluated(scores, labels, federation.class_counts("train"), federation.groups))
    if federation.validation is not None:
        row |= _prefixed("validation", engine.evaluate(clients, clustering.models, labels, "validation"))
    if (served := serve_newcomers(clustering, engine, federation)) is not None:
        row |= _prefixed("newcomers", served)
    return row


def _prefixed(kind: str, scores: Scores) -> dict[str, float]:
    metrics = {name: METRICS[name] for name in METRICS if name not in OF_CLUSTERS}
    row = evaluate(Evaluated(scores, np.zeros(len(scores.clients), np.int64)), metrics)
    return {f"{kind}_{name}": value for name, value in row.items() if name in metrics}


def serve_newcomers(clustering: Clustering, engine: Engine, federation: Federation) -> Scores | None:
    """Score newcomers on their test samples.

    Each is served by the model with the least loss on its own training samples, which no model has seen. None: there are no
    newcomers, or every client has a model of its own.
    """
    new, n_models = federation.newcomers, len(clustering.models)
    if new is None or n_models >= federation.n_clients > 1:
        return None
    ids = federation.n_clients + np.arange(new.n_clients)
    loss = np.zeros((len(ids), 1))
    if n_models > 1:
        asked = engine.evaluate(np.repeat(ids, n_models), clustering.models, np.tile(np.arange(n_models), len(ids)), "train")
        loss = np.nan_to_num(asked.loss, nan=np.inf).reshape(len(ids), n_models)
    return engine.evaluate(ids, clustering.models, loss.argmin(1))


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
        arrays = {
            "clients": scores.clients,
            "accuracy": accuracy(scores),
            "balanced": balanced_accuracy(scores),
            "weighted": weighted_accuracy(scores, self.counts[scores.clients]),
            "failures": failures[scores.clients],
            **_hits(scores),
        }
        if (served := serve_newcomers(clustering, self.engine, self.federation)) is not None:
            of_newcomers = {"clients": served.clients, "accuracy": accuracy(served), **_hits(served)}
            arrays |= {f"newcomers_{name}": array for name, array in of_newcomers.items()}
        folder.save_per_client(arrays)


def _hits(scores: Scores) -> dict[str, NDArray[Any]]:
    """Return which test samples were right, and where each client's begin."""
    if scores.hits is None:
        return {}
    offsets = np.concatenate([[0], np.cumsum(scores.total.sum(1))]).astype(np.int64)
    return {"hits": scores.hits, "hits_offsets": offsets}
