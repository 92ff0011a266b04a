"""How a server turns its clients' models into the next one. FedAvg, FairAvg and FedAvgM are settings of one step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedgwc.core import Updates
from fedgwc.errors import InputError


@dataclass(frozen=True)
class Server:
    """One model and the momentum that moves it."""

    theta: Tensor  # [D]
    velocity: Tensor | None = None  # [n_params]; None until momentum is used


@dataclass(frozen=True)
class Aggregator:
    """The next model is the clients' weighted mean, reached with optional server momentum.

    FedAvg: the defaults. FairAvg: `weights="equal"`. FedAvgM: `momentum=0.9`.
    """

    weights: Literal["samples", "equal"] = "samples"
    momentum: float = 0.0
    lr: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise InputError(f"aggregator momentum must be in [0, 1), got {self.momentum}; 0 turns it off")
        if self.lr <= 0:
            raise InputError(f"aggregator lr must be positive, got {self.lr}; 1 takes the clients' mean as it is")

    def step(self, server: Server, updates: Updates) -> Server:
        """The server after one cohort; without a single answer nothing changes."""
        if not len(updates):
            return server
        mean = self._weights(updates) @ updates.models  # [D]
        if self.momentum == 0 and self.lr == 1:
            return replace(server, theta=mean)
        split = mean.numel() if updates.n_params is None else updates.n_params
        old = server.theta[:split]
        velocity = mean[:split] - old
        if self.momentum and server.velocity is not None:
            velocity = velocity + self.momentum * server.velocity
        # Buffers are only ever averaged: momentum could drive a running variance below zero.
        theta = torch.cat([old + self.lr * velocity, mean[split:]])
        return Server(theta, velocity if self.momentum else None)

    def _weights(self, updates: Updates) -> Tensor:
        """[n], summing to 1."""
        sizes = updates.sizes.to(torch.float64)
        w = sizes if self.weights == "samples" else torch.ones_like(sizes)
        return (w / w.sum()).to(updates.models)
