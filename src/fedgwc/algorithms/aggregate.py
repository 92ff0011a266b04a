"""Server aggregation: from clients' models to the next server model.

FedAvg, FairAvg and FedAvgM are settings of one step, and so are the means that a minority of liars cannot move at will.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from fedgwc.core.errors import InputError
from fedgwc.core.search import Between
from fedgwc.core.tensors import stack_rows, to_device
from fedgwc.core.types import Ids, Updates


@dataclass(frozen=True)
class Server:
    """A server model with its momentum, or several stacked.

    Several have one more axis, in front of both.
    """

    theta: Tensor  # [D]
    velocity: Tensor | None = None  # [n_params]; None until momentum is used


@dataclass(frozen=True)
class Aggregator:
    """Server aggregation by weighted mean, with optional server momentum.

    FedAvg: the defaults. FairAvg: `weights="equal"`. FedAvgM: `momentum=0.9`. `combine` is what stands for the cohort:

    - "mean": by `weights`; one client can move it anywhere.
    - "median": of each coordinate; stays among the honest values while fewer than half of the cohort lie.
    - "trimmed-mean": of each coordinate, without the `trim` lowest and the `trim` highest shares of the cohort.
    - "clipped-mean": by `weights`, after no client's step is longer than `clip`; buffers take the median.

    Median and trimmed mean count every client once, whatever `weights` says: a sample count is the client's own word.
    """

    weights: Annotated[Literal["samples", "equal"], "what a client counts by"] = "samples"
    momentum: Annotated[float, "of the server's step, in [0, 1)", Between(0.5, 0.99)] = 0.0
    lr: Annotated[float, "of the server's step; 1: the clients' mean as it is"] = 1.0
    combine: Annotated[Literal["mean", "median", "trimmed-mean", "clipped-mean"], "what stands for the cohort's models"] = "mean"
    trim: Annotated[float, "of trimmed-mean: share left out at each end, rounded up"] = 0.2
    clip: Annotated[float, "of clipped-mean: longest step from the server's model; 0: the cohort's median length"] = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise InputError(f"aggregator momentum must be in [0, 1), got {self.momentum}; 0 turns it off")
        if not 0 < self.lr < math.inf:
            raise InputError(f"aggregator lr must be positive and finite, got {self.lr}; 1 takes the clients' mean as it is")
        if not 0 <= self.trim < 0.5:
            raise InputError(f"aggregator trim must be in [0, 0.5), got {self.trim}; it is the share left out at each end")
        if not 0 <= self.clip < math.inf:
            raise InputError(f"aggregator clip must be >= 0 and finite, got {self.clip}; 0 takes the cohort's median length")

    def step(self, server: Server, updates: Updates) -> Server:
        """Move the server by one cohort's answers.

        Without a single answer, or where numbers overflow, nothing changes.
        """
        if not len(updates):
            return server
        new = self._moved(server, self._combined(server, updates), updates.n_params)
        return _unless_overflown(new, server)

    def steps(self, servers: Sequence[Server], updates: Updates, server_of: Ids) -> list[Server]:
        """Move every server by its own cohort's answers.

        The same as `step` one by one; `own` [n] is the server of each answer.
        """
        if len(servers) == 1:
            return [self.step(servers[0], updates)]
        if self.combine != "mean":
            return [self.step(s, updates.rows(np.flatnonzero(server_of == i))) for i, s in enumerate(servers)]
        answered = np.flatnonzero(np.bincount(server_of))  # a server without a single answer stays as it is
        if not len(answered):
            return list(servers)
        places = answered.tolist()
        before = _stacked([servers[i] for i in places])
        new = self._moved(before, self._means(updates, answered.searchsorted(server_of)), updates.n_params)
        moved = _unstacked(_unless_overflown(new, before))
        if len(places) < len(servers):  # views would keep a whole cohort's models alive as long as any one of them
            moved = [Server(s.theta.clone(), None if s.velocity is None else s.velocity.clone()) for s in moved]
        after = dict(zip(places, moved, strict=True))
        return [after.get(i, server) for i, server in enumerate(servers)]

    def _means(self, updates: Updates, cohort: Ids) -> Tensor:
        """Average each cohort's models by `weights` [C, D].

        Row i of the updates belongs to cohort[i].

        As sums of rows, not as a product of matrices: that would round to TF32 while the engine trains so in another thread,
        and a number that is not finite would spread to all cohorts.
        """
        order = cohort.argsort(kind="stable")
        if len(cohort) == cohort.max() + 1:  # one answer each is its own mean
            return updates.models[to_device(updates.models.device, order)]
        w = self.shares(updates).numpy()
        w = w / np.bincount(cohort, w)[cohort]
        first = cohort[order].searchsorted(np.arange(cohort.max() + 1))
        models = updates.models
        rows, weights, bags = (to_device(models.device, x) for x in (order, w[order], first))
        return embedding_bag(rows, models, bags, mode="sum", per_sample_weights=weights.to(models.dtype))

    def _moved(self, server: Server, target: Tensor, n_params: int | None) -> Server:
        if self.momentum == 0 and self.lr == 1:
            return Server(target, server.velocity)
        split = target.shape[-1] if n_params is None else n_params
        old = server.theta[..., :split]
        velocity = target[..., :split] - old
        if self.momentum and server.velocity is not None:
            velocity = velocity + self.momentum * server.velocity
        # Buffers are only ever averaged: momentum could drive a running variance below zero.
        theta = torch.cat([old + self.lr * velocity, target[..., split:]], -1)
        return Server(theta, velocity if self.momentum else None)

    def _combined(self, server: Server, updates: Updates) -> Tensor:
        """Combine a cohort's models into one [D]."""
        if self.combine == "median":
            return trimmed_mean(updates.models, 0.5)
        if self.combine == "trimmed-mean":
            return trimmed_mean(updates.models, self.trim)
        if self.combine == "clipped-mean":
            pulls = clipped(updates.parameters - server.theta[: updates.n_params], self.clip)
            theta = server.theta[: updates.n_params] + self._weights(updates) @ pulls
            return torch.cat([theta, trimmed_mean(updates.models[:, theta.numel() :], 0.5)])
        return self._weights(updates) @ updates.models

    def _weights(self, updates: Updates) -> Tensor:
        """Return the answers' weights [n], summing to 1."""
        w = self.shares(updates)
        return (w / w.sum()).to(updates.models, non_blocking=True)

    def shares(self, updates: Updates) -> Tensor:
        """Return each answer's weight [n], not normalised."""
        return updates.sizes.double() if self.weights == "samples" else torch.ones(len(updates), dtype=torch.float64)


def _unless_overflown(new: Server, old: Server) -> Server:
    """Return the new server if it is finite, else the old one.

    Decided where the models are: if the host asked a GPU, it would wait for the answer.
    """
    finite = new.theta.sum(-1, keepdim=True).abs() < math.inf
    theta = torch.where(finite, new.theta, old.theta.to(new.theta))
    if new.velocity is None or new.velocity is old.velocity:
        return Server(theta, new.velocity)
    return Server(theta, torch.where(finite, new.velocity, 0.0 if old.velocity is None else old.velocity))


def _stacked(servers: Sequence[Server]) -> Server:
    theta, velocities = stack_rows([s.theta for s in servers]), [s.velocity for s in servers]
    velocities_set = [v for v in velocities if v is not None]
    if not velocities_set:
        return Server(theta)
    return Server(theta, stack_rows([torch.zeros_like(velocities_set[0]) if v is None else v for v in velocities]))


def _unstacked(server: Server) -> list[Server]:
    if server.velocity is None:
        return [Server(theta) for theta in server.theta.unbind()]
    return [Server(*both) for both in zip(server.theta.unbind(), server.velocity.unbind(), strict=True)]


def trimmed_mean(models: Tensor, trim: float) -> Tensor:
    """Average each coordinate without its extremes: [n, D] -> [D].

    The lowest and the highest share `trim` are left out; at least one or two values stay: the median.
    """
    n = len(models)
    cut = min(math.ceil(trim * n - 1e-9), (n - 1) // 2)
    return models.sort(0).values[cut : n - cut].mean(0)


def clipped(pulls: Tensor, longest: float) -> Tensor:
    """Clip updates [n, p] to length `longest`.

    0: to the median length.
    """
    lengths = pulls.norm(dim=1, keepdim=True)
    limit = lengths.sort(0).values[(len(pulls) - 1) // 2] if longest == 0 else lengths.new_tensor([longest])
    return torch.where(lengths > limit, pulls * (limit / lengths), pulls)
