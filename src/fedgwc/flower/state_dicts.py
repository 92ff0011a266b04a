"""The messages that a user's own client app answers: one node is one client, and a model is a dictionary of arrays.

The contract, in Flower's own terms:

- to `train`: content `arrays` (an ArrayRecord) and `config` (what `start(train_config=...)` was given, and `server-round`);
- the reply holds one ArrayRecord with the same names, shapes and types, and one MetricRecord with `num-examples` (a whole
  number, at least 1) and `losses`, a list with the loss of every local step, in order;
- optional: an `@app.query()` that replies with a ConfigRecord `{"client-id": "..."}`, the client's lasting name. Without it a
  client is known by its node, which is the same client again only where nodes are registered with keys;
- with private losses the app's training has the mod `keep_losses`, which takes `losses` out of the reply (see `private_client`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.types import Split
from fedgwc.flower import checks
from fedgwc.flower.checks import Invalid
from fedgwc.flower.identity import Identity
from fedgwc.flower.mailbox import error_reason
from fedgwc.flower.private_client import PRIVATE
from fedgwc.flower.wire import Kind, Question, Scored, Task, Trained, read_losses

NO_QUERY = "No query function registered"  # what Flower replies for an app that answers no queries
BUFFERS = ("running_mean", "running_var")  # averaged, but no parameters: momentum must not touch them


def read_identity(reply: Message, node: int) -> Identity:
    """Read a client's own name, or use its node's number."""
    if reply.has_error() and NO_QUERY not in (reply.error.reason or ""):
        raise Invalid(error_reason(reply.error))
    for record in reply.content.config_records.values() if reply.has_content() else ():
        if "client-id" in record:
            return Identity(checks.names([record["client-id"]]))
    return Identity((f"node-{node}",))


@dataclass(frozen=True)
class Entry:
    """One array of the model, and where it lies in the vector."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class StateDictWire:
    """Turns models into state dictionaries and back, one message per client.

    Arrays of whole numbers (counters) travel as they were given and are not averaged.
    """

    entries: tuple[Entry, ...]  # floating point, the parameters first
    fixed: dict[str, Array]
    order: tuple[str, ...]  # of all names
    dtype: torch.dtype
    n_params: int | None
    config: dict[Kind, dict[str, Any]] = field(default_factory=dict)
    private: bool = False  # losses stay with the clients
    max_steps: int = checks.MOST_STEPS

    @classmethod
    def of(
        cls, arrays: ArrayRecord, config: dict[Kind, dict[str, Any]], private: bool = False, max_steps: int = checks.MOST_STEPS
    ) -> StateDictWire:
        """Learn names, shapes and types from a model's arrays."""
        entries, fixed = [], {}
        for name, array in arrays.items():
            values = array.numpy()
            if values.dtype.kind == "f":
                entries.append(Entry(name, values.shape, values.dtype))
            else:
                fixed[name] = array
        if not entries:
            raise InputError("initial_arrays hold no floating-point array; give the model's state_dict as an ArrayRecord")
        entries.sort(key=lambda e: e.name.split(".")[-1] in BUFFERS)  # stable: otherwise in the order given
        n = sum(int(np.prod(e.shape)) for e in entries if e.name.split(".")[-1] not in BUFFERS)
        wide = torch.float64 if any(e.dtype == np.float64 for e in entries) else torch.float32
        return cls(tuple(entries), fixed, tuple(arrays), wide, n, config, private, max_steps)

    # Vectors and arrays

    def vector(self, arrays: ArrayRecord) -> Tensor:
        """Flatten a model's arrays to a vector [D]."""
        parts = [checks.array(arrays.get(e.name), e.shape, e.dtype).ravel() for e in self.entries]
        return torch.from_numpy(np.concatenate(parts)).to(self.dtype)

    def arrays(self, theta: Tensor) -> ArrayRecord:
        """Turn a vector [D] into a model's arrays."""
        pieces = theta.split([int(np.prod(e.shape)) for e in self.entries])
        found = {
            e.name: Array(np.array(p.cpu().numpy().reshape(e.shape), e.dtype)) for e, p in zip(self.entries, pieces, strict=True)
        }
        return ArrayRecord({name: found.get(name) or self.fixed[name] for name in self.order})

    # Questions and answers

    @property
    def local(self) -> None:
        """Return nothing: the app trains as it likes."""

    @property
    def compares_models(self) -> bool:
        """Tell whether clients can compare models: not if losses stay private."""
        return not self.private

    def train(self, tasks: Sequence[Task], models: Tensor, seed: int, number: int) -> list[Question]:
        return self._questions(tasks, models, "train", number)

    def evaluate(self, tasks: Sequence[Task], models: Tensor, split: Split, number: int) -> list[Question]:
        """Ask for a model's training losses or test metrics."""
        return self._questions(tasks, models, "train" if split == "train" else "evaluate", number)

    def _questions(self, tasks: Sequence[Task], models: Tensor, kind: Kind, number: int) -> list[Question]:
        config = {**self.config.get(kind, {}), "server-round": number, **({PRIVATE: True} if self.private else {})}
        records = {row: self.arrays(models[row]) for row in {t.row for t in tasks}}
        return [Question((t,), RecordDict({"arrays": records[t.row], "config": ConfigRecord(dict(config))}), kind) for t in tasks]

    def trained(self, content: RecordDict, tasks: Sequence[Task]) -> dict[Task, Trained | Invalid]:
        records = list(content.array_records.values())
        if len(records) != 1 or set(records[0]) != set(self.order):
            raise Invalid("the reply must hold one ArrayRecord with the names of the model that was sent")
        size = checks.count(only_metrics(content), "num-examples", 1)
        losses, kept = read_losses(content, next(iter(content.metric_records)), self.private, self.max_steps)
        return {tasks[0]: Trained(tasks[0], self.vector(records[0]).numpy(), losses, size, kept=kept)}

    def scored(self, content: RecordDict, tasks: Sequence[Task]) -> dict[Task, Scored | Invalid]:
        metrics = only_metrics(content)
        losses, total = checks.losses(metrics, most=self.max_steps), checks.count(metrics, "num-examples", 1)
        return {tasks[0]: Scored(tasks[0], float(losses.mean()), np.zeros(1), np.array([total], np.float64))}


def only_metrics(content: RecordDict) -> MetricRecord:
    """Return the reply's one MetricRecord."""
    records = list(content.metric_records.values())
    if len(records) != 1:
        raise Invalid("the reply must hold one MetricRecord, with num-examples and, of training, losses")
    return records[0]
