"""Messages between fedgwc's own server and client apps: one message per node, for all the clients that it serves.

To train:     config  protocol, seed, fingerprint of the model, names / numbers / which: parallel lists, one entry per client
              models  the distinct models that these clients start from, each one flat vector [D]
The reply:    models  one trained vector per client, by number
              client-<number>  num-examples, losses, test-loss, test-correct, test-total and, with consent, class-counts
To evaluate:  the same question with a split; a client may stand in it several times
The reply:    scores  loss, correct, total: one entry per question; with consent correct-by-class and total-by-class

With private-losses = true in the config a reply to training holds `steps` in place of `losses`, no test-loss, and a key (see
`private_client`); an evaluation tells in place of losses which of the models asked about is the best, 0, and which are not, 1.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.core.types import Floats, Ids, Split
from fedgwc.core.work import LocalTraining
from fedgwc.flower import checks
from fedgwc.flower.checks import Invalid
from fedgwc.flower.masking import is_valid_key
from fedgwc.flower.private_client import PRIVATE
from fedgwc.training.flat_model import FlatModel

PROTOCOL = 2
Kind = Literal["train", "evaluate"]


@dataclass(frozen=True)
class Task:
    """One client, and the row of the model that it is asked about."""

    number: int
    name: str
    row: int


@dataclass(frozen=True)
class KeptLosses:
    """The number of losses that stayed with a client, and its node's key."""

    steps: int  # S
    key: bytes  # of its node, for masked sums
    record: str  # what its node calls it


@dataclass(frozen=True)
class Trained:
    """One client's checked answer."""

    task: Task
    model: NDArray[Any]  # [D]
    losses: Floats  # [S], or [0] where they are private
    size: int
    counts: Ids | None = None  # [C], with consent
    test: tuple[float, int, int] | None = None  # loss (NaN: private), right answers and samples, of the model that it was sent
    kept: KeptLosses | None = None  # about private losses


@dataclass(frozen=True)
class Scored:
    """One model on one client's data."""

    task: Task
    loss: float
    correct: Floats  # [C], or [1] without consent
    total: Floats


@dataclass(frozen=True)
class Summed:
    """A masked sum of a node's losses, with this client's among them."""

    task: Task
    words: NDArray[np.uint64]  # [2, 2, S], masked


@dataclass(frozen=True)
class Rewarded:
    """A client's own reward, given its cohort's mean and variance."""

    task: Task
    reward: float
    words: NDArray[np.uint64] | None  # [2], masked: its node's sum of squared means


@dataclass(frozen=True)
class Question:
    """The content of one message, and the tasks that its reply answers."""

    tasks: tuple[Task, ...]
    content: RecordDict
    kind: str  # of message


class Wire(Protocol):
    """Puts questions to a node and reads its replies.

    Reading raises Invalid where the whole reply is, returns it in place of one client's answer, and leaves out who failed.
    """

    @property
    def n_params(self) -> int | None: ...

    @property
    def compares_models(self) -> bool:
        """Tell whether a client can compare models on its training data."""
        ...

    @property
    def local(self) -> LocalTraining | None:
        """Return how clients train; None: that is their app's own matter."""
        ...

    def train(self, tasks: Sequence[Task], models: Tensor, seed: int, number: int) -> list[Question]: ...
    def trained(self, content: RecordDict, tasks: Sequence[Task]) -> dict[Task, Trained | Invalid]: ...
    def evaluate(self, tasks: Sequence[Task], models: Tensor, split: Split, number: int) -> list[Question]: ...
    def scored(self, content: RecordDict, tasks: Sequence[Task]) -> dict[Task, Scored | Invalid]: ...


def fingerprint(model: FlatModel) -> str:
    """Hash a model's architecture and frozen layers."""
    text = ";".join(f"{name}:{tuple(shape)}" for name, shape in zip(model.layout.names, model.layout.shapes, strict=True))
    digest = hashlib.sha256(f"{text};{model.n_params};{model.dtype}".encode())
    for name, tensor in model.frozen.items():  # these never travel, so every node has to have the same
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]


def read_losses(content: RecordDict, record: str, private: bool, most: int) -> tuple[Floats, KeptLosses | None]:
    """Read a client's losses or, if private, their number."""
    metrics = content.metric_records.get(record, MetricRecord())
    if not private:
        return checks.losses(metrics, most=most), None
    if "losses" in metrics:
        raise Invalid("it sent its losses, which are to stay private; does its app lack the mod keep_losses?")
    key, steps = content.config_records.get("party", ConfigRecord()).get("key"), checks.count(metrics, "steps", 1)
    if not isinstance(key, bytes) or not is_valid_key(key) or steps > most:
        raise Invalid(f"its public key is none, or it made more than {most} steps")
    return np.empty(0), KeptLosses(steps, key, record)


@dataclass(frozen=True)
class RecipeWire:
    """Asks nodes with the ready-made client app, one message for all clients of a node."""

    size: int  # D
    dtype: np.dtype[Any]
    model: str  # fingerprint
    n_classes: int
    n_params: int | None
    private: bool = False  # losses stay with the clients
    local: LocalTraining | None = None  # what the recipe lets clients do
    max_steps: int = checks.MOST_STEPS

    @classmethod
    def of(cls, model: FlatModel, n_classes: int, private: bool = False, **bounds: Any) -> RecipeWire:
        """Ask about a model of this architecture."""
        dtype = torch.empty(0, dtype=model.dtype).numpy().dtype
        return cls(model.size, dtype, fingerprint(model), n_classes, model.n_params, private, **bounds)

    @property
    def compares_models(self) -> bool:
        return True

    def train(self, tasks: Sequence[Task], models: Tensor, seed: int, number: int) -> list[Question]:
        return [self._question(tasks, models, "train", {"seed": seed, "round": number})]

    def evaluate(self, tasks: Sequence[Task], models: Tensor, split: Split, number: int) -> list[Question]:
        return [self._question(tasks, models, "evaluate", {"split": split})]

    def _question(self, tasks: Sequence[Task], models: Tensor, kind: Kind, more: dict[str, Any]) -> Question:
        rows = sorted({t.row for t in tasks})
        arrays = ArrayRecord({str(i): Array(models[row].cpu().numpy()) for i, row in enumerate(rows)})
        # A fresh record for every message: Flower hands a shared one to all clients of a process.
        config = ConfigRecord({"protocol": PROTOCOL, "model": self.model, **({PRIVATE: True} if self.private else {}), **more})
        config["names"] = [t.name for t in tasks]
        config["numbers"] = [t.number for t in tasks]
        config["which"] = [rows.index(t.row) for t in tasks]
        return Question(tuple(tasks), RecordDict({"models": arrays, "config": config}), kind)

    def trained(self, content: RecordDict, tasks: Sequence[Task]) -> dict[Task, Trained | Invalid]:
        self._same_model(content)
        models = content.array_records.get("models", ArrayRecord())
        answers: dict[Task, Trained | Invalid] = {}
        for task in tasks:
            metrics = content.metric_records.get(f"client-{task.number}")
            if metrics is None and str(task.number) not in models:
                continue  # it failed on its own and says so by silence: a missing row
            try:
                answers[task] = self._read_client(task, models.get(str(task.number)), metrics or MetricRecord(), content)
            except Invalid as reason:
                answers[task] = reason
        return answers

    def _read_client(self, task: Task, model: Array | None, metrics: MetricRecord, content: RecordDict) -> Trained:
        vector = checks.array(model, (self.size,), self.dtype)
        size = checks.count(metrics, "num-examples", 1)
        counts = checks.counts(metrics, "class-counts", self.n_classes) if "class-counts" in metrics else None
        if counts is not None and counts.sum() != size:
            raise Invalid(f"class-counts sum to {counts.sum()} and num-examples is {size}")
        total, right = checks.count(metrics, "test-total"), checks.count(metrics, "test-correct")
        if right > total:
            raise Invalid(f"test-correct is {right} of {total}")
        loss = math.nan if self.private or not total else checks.number(metrics, "test-loss")
        losses, kept = read_losses(content, f"client-{task.number}", self.private, self._most_steps(size))
        return Trained(task, vector, losses, size, counts, (loss, right, total) if total else None, kept)

    def _most_steps(self, size: int) -> int:
        """Return the most local steps that `size` samples make."""
        if self.local is None:
            return self.max_steps
        if self.local.steps is not None:  # the operator's own words
            return self.local.steps
        return min(self.max_steps, int(self.local.step_counts(torch.tensor([size]))[0]))

    def scored(self, content: RecordDict, tasks: Sequence[Task]) -> dict[Task, Scored | Invalid]:
        self._same_model(content)
        scores, n = content.metric_records.get("scores", MetricRecord()), len(tasks)
        loss = checks.numbers(scores, "loss", n)
        classes = self.n_classes if "correct-by-class" in scores else 1
        names = ("correct-by-class", "total-by-class") if classes > 1 else ("correct", "total")
        correct, total = (checks.counts(scores, key, n * classes).reshape(n, classes).astype(np.float64) for key in names)
        none = {task.number for task, n in zip(tasks, total, strict=True) if not n.any()}
        answers: dict[Task, Scored | Invalid] = {}
        for i, task in enumerate(tasks):
            if (correct[i] > total[i]).any():
                answers[task] = Invalid("a score has more right answers than samples")
            elif task.number not in none:  # a client without samples has no score; that is not an error
                answers[task] = Scored(task, float(loss[i]), correct[i], total[i])
        return answers

    def _same_model(self, content: RecordDict) -> None:
        came = content.config_records.get("about", ConfigRecord()).get("model")
        if came != self.model:
            raise Invalid(f"it trains another model ({str(came)[:40]!r}): does its recipe differ from the server's?")
