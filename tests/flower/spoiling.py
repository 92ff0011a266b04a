"""What tests of misbehaving nodes share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Error, Message
from torch import Tensor

from fedgwc.core.types import Clustering, Updates
from fedgwc.flower import Options
from fedgwc.flower.server import serve
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.folder import RunFolder

from .grids import LocalGrid, Spoil
from .worlds import QUICK, World, nodes_for

Change = Callable[[Any], Message | None]  # of a reply


def vector(job: Experiment) -> Tensor:
    return job.simulator(job.federation()).model.vector()


def train(here: World, clients: Any = range(12), models: Any = None, which: Any = None) -> Updates:
    clients = np.array(clients, np.int64)
    models = vector(here.job)[None] if models is None else models
    which = np.zeros(len(clients), np.int64) if which is None else np.array(which)
    return here.engine.train(clients, models, which, 7)


def on(kind: str, change: Change) -> Spoil:
    """Change replies to one kind of message only."""

    def spoil(question: Message, reply: Message) -> Message | None:
        return change(reply) if question.metadata.message_type == kind else reply

    return spoil


def on_training(change: Change) -> Spoil:
    return on("train", change)


def no_answer(_: Message) -> None:
    return None


SUM, REWARD = "query.losses_sum", "query.losses_reward"  # messages of private losses


def kinds(messages: Sequence[Message]) -> list[str]:
    return [m.metadata.message_type for m in messages]


def lose(here: World, node: int, kind: str, how: str) -> None:
    """Let a node fail one kind of message, silently or with an error."""

    def spoil(question: Message, reply: Message) -> Message | None:
        if question.metadata.message_type != kind:
            return reply
        return None if how == "silent" else Message(Error(2, "ValueError: no"), reply_to=question)

    here.grid.spoil[node] = spoil


def run(job: Experiment, out: Path, **options: Any) -> tuple[LocalGrid, Clustering, RunFolder]:
    """Run the twelve clients of `blobs` on a new grid."""
    grid = LocalGrid()
    nodes_for(grid, job)
    clustering = serve(job, grid, out, Options(min_clients=12, **{**QUICK, **options}))
    return grid, clustering, RunFolder(out)


def rewards_of(updates: Updates) -> Tensor:
    """Return rewards that clients computed themselves."""
    assert updates.rewards is not None
    return updates.rewards


def readings_of(updates: Updates) -> Tensor:
    """Return readings from the clients' masked sums."""
    assert updates.readings is not None
    return updates.readings
