"""The ready-made client app, which trains its clients as the simulator would.

The node's own configuration says whom it serves:

    clients="0-3,7"          clients of the recipe's federation, by number
    data="/data/mine.npz"    or the node's own data (see the data set `arrays`), under the name ...
    name="hospital-a"        ... which must differ from every other node's
    share-class-counts=true  consent to tell the server how many samples of each class there are (default: false)
    private-losses=true      answer only where losses stay private (default: false, the run decides)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from fedgwc.core import random
from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats, Ids, Split
from fedgwc.core.work import Work
from fedgwc.engines.simulator import Simulator
from fedgwc.flower import checks
from fedgwc.flower.moments import LARGEST
from fedgwc.flower.private_client import PRIVATE, is_private, keep_losses, private_losses
from fedgwc.flower.wire import PROTOCOL, fingerprint
from fedgwc.runs.experiment import Experiment, load

log = logging.getLogger("fedgwc")

Recipe = str | os.PathLike[str] | Mapping[str, Any] | Experiment | None  # its name, file or tables; None: the default


@dataclass(frozen=True)
class Served:
    """The clients of one node, on its engine."""

    engine: Simulator
    places: dict[str, int]  # by name: the client's row in the node's own federation
    consents: bool
    model: str  # fingerprint


def client_app(recipe: Recipe = None) -> ClientApp:
    """Make a ready-made client app for a recipe."""
    app = private_losses(ClientApp())
    job = recipe if isinstance(recipe, Experiment) else load(recipe)

    @lru_cache(maxsize=8)  # a process that serves several messages, or several nodes, builds its data once
    def engine(data: Any) -> Simulator:
        return node_simulator(job, data)

    def node(context: Context) -> Served:
        return served_clients(engine(context.node_config.get("data")), context.node_config)

    @app.query()
    def identify(message: Message, context: Context) -> Message:
        if refused := message.content.config_records["config"].get("refused"):
            log.error("the server leaves this node out of the run: %.300s", refused)
        return Message(describe_node(node(context)), reply_to=message)

    @app.train(mods=[keep_losses])
    def train(message: Message, context: Context) -> Message:
        return Message(train_clients(node(context), message.content), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(score_clients(node(context), message.content, is_private(message, context)), reply_to=message)

    return app


def node_simulator(job: Experiment, data: Any = None) -> Simulator:
    """Load the recipe's federation, or that in a node's own file."""
    job = job if data is None else with_data(job, data)
    # One by one: what a node trains are a few clients, and worker processes would outlive the message.
    return replace(job, engine=replace(job.engine, how="one-by-one")).simulator(job.federation(newcomers=False))


def with_data(job: Experiment, data: Any) -> Experiment:
    """Point the recipe's [data] at a node's own file."""
    return replace(job, tables={**job.tables, "data": {**job.tables["data"], "name": "arrays", "path": str(data)}})


def served_clients(engine: Simulator, config: Mapping[str, Any]) -> Served:
    """Return the clients that a node's configuration names."""
    n, name = engine.federation.n_clients, config.get("name")
    if config.get("data") is None:
        places = {str(k): k for k in parse_clients(config.get("clients"), n)}
    elif not isinstance(name, str) or not name:
        raise InputError('a node with its own data needs a name of its own: --node-config \'data="..." name="..."\'')
    else:
        places = {name if n == 1 else f"{name}/{k}": k for k in range(n)}
    return Served(engine, places, bool(config.get("share-class-counts", False)), fingerprint(engine.model))


def parse_clients(text: Any, n_clients: int) -> list[int]:
    """Parse client numbers such as "0-3,7".

    >>> parse_clients("0-3,7", 10)
    [0, 1, 2, 3, 7]
    """
    found: set[int] = set()
    for part in str(text if text is not None else "").split(","):
        first, _, last = part.strip().partition("-")
        if not all(map(checks.is_number, (first, last or "0"))) or not int(first) <= int(last or first) < n_clients:
            raise InputError(f'a node must say which of the {n_clients} clients it serves, as in clients="0-3,7"; got {text!r}')
        found.update(range(int(first), int(last or first) + 1))
    return sorted(found)


def describe_node(me: Served) -> RecordDict:
    """Answer which clients this node serves and what their data look like."""
    f = me.engine.federation
    about: dict[str, Any] = {"protocol": PROTOCOL, "names": list(me.places), "n-classes": f.n_classes, "shape": list(f.shape)}
    scale = {key: list(values) for key, values in (("mean", f.mean), ("std", f.std)) if values}
    return RecordDict({"identity": ConfigRecord({**about, **scale})})


def train_clients(me: Served, content: RecordDict) -> RecordDict:
    """Answer a training message; clients whose training fails are left out."""
    models, config, places = _question(me, content)
    seed, numbers = cast(int, config["seed"]), cast(list[int], config["numbers"])
    arrays, reply = ArrayRecord(), RecordDict({"about": ConfigRecord({"model": me.model})})
    which = np.array(config["which"], np.int64)
    private = config.get(PRIVATE) is True
    tests = me.engine.evaluate(np.array(places, np.int64), models, which)
    counts = me.engine.federation.class_counts("train").astype(int) if me.consents else None
    for i, (place, number) in enumerate(zip(places, numbers, strict=True)):
        theta, losses = train_one(
            me.engine, place, number, models[which[i]], seed, Work(round=cast(int, config["round"]) or None)
        )
        if not (torch.isfinite(theta).all() and (losses.abs() <= LARGEST).all()):
            continue
        arrays[str(number)] = Array(theta.cpu().numpy())
        total, right = int(tests.total[i].sum()), int(tests.correct[i].sum())
        about = {"num-examples": int(me.engine.sizes[place]), "test-correct": right, "test-total": total}
        reply[f"client-{number}"] = metrics = MetricRecord({**about, **({} if private else {"test-loss": float(tests.loss[i])})})
        metrics["losses"] = losses.double().tolist()
        if counts is not None:
            metrics["class-counts"] = counts[place].tolist()
    reply["models"] = arrays
    return reply


def train_one(
    engine: Simulator, client: int, number: int, start: Tensor, seed: int, work: Work | None = None
) -> tuple[Tensor, Tensor]:
    """Train one client: its model [D] and losses [S]; NaN: impossible.

    Minibatches follow from (seed, number), wherever data lie.
    """
    theta, losses = engine.train_one(client, int(random.keys(seed, np.array([number]))[0]), start, work)
    return theta, losses.cpu()


def score_clients(me: Served, content: RecordDict, private: bool = False) -> RecordDict:
    """Answer an evaluation message; private losses become choices of models."""
    models, config, places = _question(me, content)
    split: Split = "train" if config.get("split") == "train" else "test"
    scores = me.engine.evaluate(np.array(places, np.int64), models, np.array(config["which"], np.int64), split)
    loss = scores.loss
    if private:
        loss = best_models(scores.clients, loss) if split == "train" else np.full_like(loss, np.nan)
    record = MetricRecord({"loss": loss.tolist()})
    for name, values in (("correct", scores.correct), ("total", scores.total)):
        record[name] = values.sum(1).astype(int).tolist()
        if me.consents:
            record[f"{name}-by-class"] = values.astype(int).ravel().tolist()
    return RecordDict({"scores": record, "about": ConfigRecord({"model": me.model})})


def best_models(clients: Ids, losses: Floats) -> Floats:
    """Replace losses [n] by 0 for each client's best model, else 1.

    >>> best_models(np.array([5, 5, 7, 7]), np.array([0.3, 0.2, 0.1, np.nan])).tolist()
    [1.0, 0.0, 0.0, 1.0]
    """
    chosen = np.ones(len(losses))
    for k in np.unique(clients):
        mine = np.flatnonzero(clients == k)
        chosen[mine[np.nan_to_num(losses[mine], nan=np.inf).argmin()]] = 0.0
    return chosen


def _question(me: Served, content: RecordDict) -> tuple[Tensor, ConfigRecord, list[int]]:
    """Read a question: models [M, D], configuration, and the clients' rows."""
    config, records = content.config_records["config"], content.array_records["models"]
    if config.get("protocol") != PROTOCOL or config.get("model") != me.model:
        raise InputError("the server trains another model or speaks another protocol; use the same recipe and fedgwc version")
    model = me.engine.model
    dtype = torch.empty(0, dtype=model.dtype).numpy().dtype
    vectors = [checks.array(records[str(i)], (model.size,), dtype) for i in range(len(records))]
    names = cast(list[str], config["names"])
    unknown = [name for name in names if name not in me.places]
    if unknown:
        raise InputError(f"this node does not serve {unknown[0]!r}; it serves {', '.join(me.places)[:200]}")
    return torch.from_numpy(np.stack(vectors)).to(model.device), config, [me.places[name] for name in names]
