"""One round on real nodes: see who is there, let newcomers in, run the algorithm, and try again where too few answered."""

from __future__ import annotations

import logging
import time
from typing import Any, Generic

import numpy as np
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Algorithm, Grows, HoldsBack, State, Warns
from fedgwc.core.types import Rng, TooFewReplies
from fedgwc.flower.attendance import Attendance
from fedgwc.flower.engine import FlowerEngine
from fedgwc.runs.loop import layout_of

log = logging.getLogger("fedgwc")


class Rounds(Generic[State]):
    """An algorithm, the nodes that it runs on and those who want to join."""

    def __init__(self, algorithm: Algorithm[State], engine: FlowerEngine, attendance: Attendance, seed: int) -> None:
        self.algorithm, self.engine, self.attendance, self.seed = algorithm, engine, attendance, seed
        self._told = False  # that newcomers have to wait

    def start(self, model: Tensor) -> State:
        """The first state, for all clients that are there."""
        self._number(self.attendance.admit())
        n_clients = len(self.engine.roster)
        for note in self.algorithm.warnings(n_clients) if isinstance(self.algorithm, Warns) else ():
            log.info(note)
        return self.algorithm.init(model, n_clients, layout_of(self.engine, model))

    def step(self, state: State, number: int) -> State:
        """The state after round `number`. A round that gets too few replies changes nothing and is tried again."""
        options = self.engine.options
        for attempt in range(1, options.retries + 1):
            self.engine.roster.round = number
            self._gather(number)
            state = self.welcome(state, number)
            labels = self.algorithm.clustering(state).labels.copy()
            if isinstance(self.algorithm, HoldsBack):
                labels[self.algorithm.held_back(state)] = -1  # these stand in for nobody
            self.engine.begin(number, labels)
            try:
                return self.algorithm.round(state, self.engine, Rng(self.seed, number))
            except TooFewReplies as few:
                self.engine.roster.rests.clear()  # everybody is needed
                log.warning("round %d, attempt %d of %d: %s; nothing changed", number, attempt, options.retries, few)
                time.sleep(options.pause if attempt < options.retries else 0)
        raise InputError(
            f"round {number} got too few replies {options.retries} times in a row; the run stands at round {number - 1}: "
            "bring nodes back and start it again, or lower min-replies"
        )

    def _gather(self, number: int) -> None:
        """See who is there, and wait for as many as a model needs: an attempt that cannot succeed is none."""
        options, attendance, began = self.engine.options, self.attendance, time.monotonic()
        attendance.update()
        if attendance.there < options.min_replies:
            self.engine.roster.rests.clear()  # everybody is needed
        if attendance.there < options.min_replies:
            log.warning("round %d waits: %d clients are there, %d are needed", number, attendance.there, options.min_replies)
        while attendance.there < options.min_replies:
            if time.monotonic() - began > options.wait:
                raise InputError(
                    f"round {number}: {attendance.there} clients came back within {options.wait:g} s, {options.min_replies} are "
                    f"needed; the run stands at round {number - 1}: bring nodes back and start it again, or lower min-replies"
                )
            time.sleep(options.poll)
            attendance.update()

    def welcome(self, state: State, number: int) -> State:
        """Newcomers join the cluster whose model has the lowest loss on their training data; who does not answer waits.

        Where nobody may know these losses they join the largest. Those for whom the algorithm has no room wait too.
        """
        names = [n for n in self.attendance.admit() if self.engine.roster.is_up(self.attendance.newcomers[n])]
        most = self.algorithm.room(state) if isinstance(self.algorithm, Grows) else 0
        if most is not None and len(names) > most:
            self._wait(names[most:], most)
            names = names[:most]
        if not names:
            return state
        clustering = self.algorithm.clustering(state)
        rows = dict.fromkeys(names, int(np.bincount(clustering.labels).argmax()))
        if len(clustering.models) > 1 and self.engine.wire.compares:
            self.engine.begin(number, clustering.labels)
            rows = {name: int(loss.argmin()) for name, loss in self.engine.losses(names, clustering.models).items()}
        joined = [name for name in names if name in rows]
        for name in joined:
            log.info("round %d: client %s joins cluster %d as number %d", number, name, rows[name], len(self.engine.roster))
            self._number([name])
        if joined and isinstance(self.algorithm, Grows):
            state = self.algorithm.grow(state, np.array([rows[name] for name in joined], np.int64))
        return state

    def _wait(self, names: list[str], room: int) -> None:
        if not self._told:
            grows = isinstance(self.algorithm, Grows)
            why = f"there is room for {room} more" if grows else "it has no method `grow` (fedgwc.core.protocols.Grows)"
            log.warning("clients cannot join: %s; they wait and do not train: %s", why, ", ".join(names)[:300])
        self._told = True

    def _number(self, names: list[str]) -> None:
        self.engine.roster.enrol(names)
        for name in names:
            del self.attendance.newcomers[name]

    def summary(self) -> dict[str, Any]:
        """What the last round looked like from here: how the models that were sent did, and who answered."""
        tested, roster = np.array(self.engine.tested, np.float64).reshape(-1, 3), self.engine.roster
        row: dict[str, Any] = {}
        if len(tested):
            loss, right, total = tested.T
            by_size = float(right.sum() / total.sum())
            row = {"accuracy": float((right / total).mean()), "accuracy_by_size": by_size}
            row |= {} if np.isnan(loss).any() else {"loss": float(loss.mean())}  # private
        answered = sum(len(r.clients) for r in self.engine.reported)
        invalid = sum(roster.invalid.values())
        return {**row, "clients": len(roster), "answered": answered, "invalid": invalid, "excluded": len(roster.excluded)}
