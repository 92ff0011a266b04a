"""What tests of misbehaving nodes share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from flwr.app import Message

from fedgwc.runs.experiment import Experiment

from .worlds import World


def vector(job: Experiment) -> torch.Tensor:
    return job.simulator(job.federation()).model.vector()


def train(here: World, clients: Any = range(12), models: Any = None, which: Any = None):
    clients = np.array(clients, np.int64)
    models = vector(here.job)[None] if models is None else models
    which = np.zeros(len(clients), np.int64) if which is None else np.array(which)
    return here.engine.train(clients, models, which, 7)


def on_training(change: Any):
    """Applies to replies to training messages only."""

    def spoil(question: Message, reply: Message) -> Message | None:
        return change(reply) if question.metadata.message_type == "train" else reply

    return spoil


def no_answer(_: Message) -> None:
    return None
