"""One engine for several runs, with one stacked call per round.

A GPU that trains ten clients at a time is not always busy: it waits while the host reads losses and takes the server's
step. Runs that differ in their seed or in their algorithm train the same network in the same way, so their cohorts can
share the stacked axis. They do so in two lanes, which take turns: while the host works for one, the card works for the
other. Each run is a thread that waits in `train` until all others of its lane have asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedgwc.core import random
from fedgwc.core.errors import InputError
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import Facts
from fedgwc.core.types import Ids, Scores, Split, Updates
from fedgwc.core.work import Work
from fedgwc.data.federation import Federation
from fedgwc.data.merge import merge
from fedgwc.engines.round_inputs import RoundInputs, concatenate, round_inputs
from fedgwc.engines.simulator import Simulator
from fedgwc.training.flat_model import FlatModel


@dataclass(frozen=True)
class _Request:
    clients: Ids  # [n] as the member numbers them
    models: Tensor  # [M, D]
    which: Ids  # [n]
    keys: Tensor  # [n]
    inputs: RoundInputs


class SharedEngine:
    """A simulator that several runs share.

    `members[i]` is the engine of run i; a run that has ended must `leave`, or the others wait for it.
    """

    def __init__(self, federations: Sequence[Federation], build: Callable[[Federation], Simulator], lanes: int = 0) -> None:
        self.engine = build(merge(federations))
        if not isinstance(self.engine, Simulator):
            raise InputError(f"runs share a simulator, and engine.name chose {type(self.engine).__name__}; run these one by one")
        training = self.engine.model
        self.model = FlatModel(
            training.module, training.dtype, training.device
        )  # for the runs: what trains looks different meanwhile
        self.first = np.cumsum([0] + [f.n_clients for f in federations])  # of each member's clients, in the engine's numbers
        new = [0 if f.newcomers is None else f.newcomers.n_clients for f in federations]
        self.first_new = self.first[-1] + np.cumsum([0, *new])  # likewise of its newcomers, who come after all clients
        self.members = [Member(self, i) for i in range(len(federations))]
        self.asking = threading.Lock()  # one at a time asks the engine for something
        lanes = lanes or (2 if self.engine.device.type == "cuda" else 1)  # a CPU has no time to fill
        self._lanes = [_Lane(self, range(i, len(federations), lanes)) for i in range(lanes)]

    def lane(self, member: int) -> _Lane:
        return self._lanes[member % len(self._lanes)]


class _Lane:
    """Runs that train in the same calls."""

    def __init__(self, pool: SharedEngine, members: Iterable[int]) -> None:
        self.pool = pool
        self._turn = threading.Condition()
        self._present = set(members)
        self._asked: dict[int, _Request] = {}
        self._answers: dict[int, Updates | Exception] = {}

    def train(self, member: int, request: _Request) -> Updates:
        with self._turn:
            self._asked[member] = request
            self._train_if_all_have_asked()
            self._turn.wait_for(lambda: member in self._answers)
            answer = self._answers.pop(member)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def leave(self, member: int) -> None:
        with self._turn:
            self._present.discard(member)
            self._train_if_all_have_asked()

    def _train_if_all_have_asked(self) -> None:
        if not self._asked or set(self._asked) != self._present:
            return
        try:
            self._answers.update(self._train(dict(sorted(self._asked.items()))))
        except Exception as error:  # everybody was waiting for it, so everybody is told
            self._answers.update(dict.fromkeys(self._asked, error))
        self._asked = {}
        self._turn.notify_all()

    def _train(self, requests: dict[int, _Request]) -> dict[int, Updates]:
        asked, first = list(requests.values()), self.pool.first
        before = np.cumsum([0] + [len(r.models) for r in asked])  # models of the members before
        which = np.concatenate([r.which + n for r, n in zip(asked, before, strict=False)])
        clients = np.concatenate([r.clients + first[i] for i, r in requests.items()])
        keys = torch.cat([r.keys for r in asked])
        with self.pool.asking:
            inputs = concatenate([(r.inputs, r.models) for r in asked])
            finish = self.pool.engine.begin(clients, torch.cat([r.models for r in asked]), which, keys, inputs)
        updates = finish()  # another lane may ask meanwhile
        return {i: self._share(updates, first[i], first[i + 1]) for i in requests}

    def _share(self, u: Updates, low: int, high: int) -> Updates:
        """Return the rows of one member.

        They are neighbours, since requests were concatenated.
        """
        mine = np.flatnonzero((u.clients >= low) & (u.clients < high))
        at = slice(int(mine[0]), int(mine[-1]) + 1) if len(mine) else slice(0, 0)
        sizes = u.sizes[at]
        steps = int(self.pool.engine.local.step_counts(sizes).max()) if len(sizes) else 0  # others may have made more
        return Updates(u.clients[at] - low, u.models[at], u.losses[at, :steps], sizes, u.n_params)


class Member:
    """One run's share of the simulator; a `Simulator` to that run."""

    def __init__(self, pool: SharedEngine, number: int) -> None:
        self.pool, self.number = pool, number

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        ids, engine = np.array(clients, np.int64), self.pool.engine
        models = models.to(engine.device, engine.model.dtype)
        inputs = round_inputs(work, engine.local, models)
        request = _Request(ids, models, np.asarray(which), random.keys(seed, ids), inputs)
        return self.pool.lane(self.number).train(self.number, request)

    def evaluate(self, clients: Ids, models: Tensor, which: Ids, split: Split = "test") -> Scores:
        ids, i, pool = np.asarray(clients, np.int64), self.number, self.pool
        n_clients = pool.first[i + 1] - pool.first[i]
        theirs = np.where(ids < n_clients, ids + pool.first[i], ids - n_clients + pool.first_new[i])
        with pool.asking:
            scores = pool.engine.evaluate(theirs, models, which, split)
        return replace(scores, clients=ids)

    def leave(self) -> None:
        self.pool.lane(self.number).leave(self.number)

    @property
    def model(self) -> FlatModel:
        return self.pool.model

    @property
    def device(self) -> torch.device:
        return self.pool.engine.device

    @property
    def layout(self) -> Layout:
        return self.pool.engine.layout

    @property
    def facts(self) -> Facts:
        return self.pool.engine.facts
