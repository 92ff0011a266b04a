"""A site whose clients are on the nodes of a Flower grid: who is there, who joins, and rounds that get too few answers."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Algorithm, Grows, HoldsBack, State
from fedgwc.core.text import readable
from fedgwc.core.types import Clustering, TooFewReplies
from fedgwc.flower.attendance import Attendance, Introduction
from fedgwc.flower.engine import FlowerEngine
from fedgwc.flower.introductions import Look
from fedgwc.flower.mailbox import Post
from fedgwc.flower.options import Options
from fedgwc.flower.roster import Members, Roster
from fedgwc.runs.site import Clients, Site

log = logging.getLogger("fedgwc")


class NodesSite(Site[Members]):
    """Clients on real nodes. What they are asked, and how a model travels, is said by those who inherit from this."""

    engine: FlowerEngine
    memory_type = Members
    in_place = False  # a round that gets too few answers is tried again from the same state
    keeps_meeting_clients = True

    def __init__(
        self,
        grid: Grid,
        options: Options,
        introduction: Introduction,
        like: Look | None = None,
        numbered: int | None = None,
    ) -> None:
        self.grid, self.options, self.roster = grid, options, Roster(options.strikes)
        post = Post(grid, options.poll)
        self.attendance = Attendance(post, self.roster, introduction, like, numbered, options.max_clients)
        self._has_told_who_waits = False

    @abstractmethod
    def build_engine(self) -> FlowerEngine:
        """Build the engine, now that it is known what clients' data look like."""

    # Beginning

    def recall(self, memory: Members) -> None:
        self.roster.restore(memory)
        log.info("resuming with %d clients", len(self.roster))

    def remember(self) -> Members:
        return self.roster.save()

    def gather(self, resumed: bool) -> None:
        if not resumed:
            log.info("waiting for %d clients", self.options.min_clients)
        self.attendance.gather(self.options, resumed=resumed)
        self.engine = self.build_engine()
        if not resumed:
            self._number(self.attendance.admit())

    @property
    def n_clients(self) -> int:
        return len(self.roster)

    def _number(self, names: list[str]) -> None:
        self.roster.enrol(names)
        for name in names:
            del self.attendance.newcomers[name]

    def clients(self) -> Clients:
        counts = self.roster.class_counts()
        known = None if counts is None else counts.astype(np.float64)
        return Clients(self.roster.save().sizes, known, None, readable(self.roster.names))

    # Rounds

    def enter(self, number: int, algorithm: Algorithm[State], state: State) -> State:
        """See who is there, let newcomers in, and tell the engine who may stand in for whom."""
        self.roster.round = number
        self._wait_for_enough(number)
        state = self.welcome(number, algorithm, state)
        labels = algorithm.clustering(state).labels.copy()
        if isinstance(algorithm, HoldsBack):
            labels[algorithm.held_back(state)] = -1  # these stand in for nobody
        self.engine.begin(number, labels)
        return state

    def again(self, number: int, attempt: int, reason: TooFewReplies) -> None:
        options = self.options
        self.roster.rests.clear()  # everybody is needed
        log.warning("round %d, attempt %d of %d: %s; nothing changed", number, attempt, options.retries, reason)
        if attempt >= options.retries:
            raise InputError(
                f"round {number} got too few replies {options.retries} times in a row; the run stands at round {number - 1}: "
                "bring nodes back and start it again, or lower min-replies"
            )
        time.sleep(options.pause)

    def _wait_for_enough(self, number: int) -> None:
        """Wait for as many clients as a model needs: an attempt that cannot succeed is none."""
        options, attendance, began = self.options, self.attendance, time.monotonic()
        attendance.update()
        if attendance.there < options.min_replies:
            self.roster.rests.clear()  # everybody is needed
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

    def welcome(self, number: int, algorithm: Algorithm[State], state: State) -> State:
        """Let newcomers join the cluster whose model has the lowest loss on their training data; who does not answer waits.

        Where nobody may know these losses they join the largest. Those for whom the algorithm has no room wait too.
        """
        names = [n for n in self.attendance.admit() if self.roster.is_up(self.attendance.newcomers[n])]
        most = algorithm.room(state) if isinstance(algorithm, Grows) else 0
        if most is not None and len(names) > most:
            self._tell_who_waits(names[most:], most, isinstance(algorithm, Grows))
            names = names[:most]
        if not names or not isinstance(algorithm, Grows):
            return state
        rows = self._clusters_for(number, names, algorithm.clustering(state))
        joined = [name for name in names if name in rows]
        for name in joined:
            log.info("round %d: client %s joins cluster %d as number %d", number, name, rows[name], len(self.roster))
            self._number([name])
        grown: State = algorithm.grow(state, np.array([rows[name] for name in joined], np.int64)) if joined else state
        return grown

    def _clusters_for(self, number: int, names: list[str], clustering: Clustering) -> dict[str, int]:
        """Choose a cluster for each newcomer that answers."""
        if len(clustering.models) > 1 and self.engine.wire.compares:
            self.engine.begin(number, clustering.labels)
            return {name: int(loss.argmin()) for name, loss in self.engine.losses(names, clustering.models).items()}
        return dict.fromkeys(names, int(np.bincount(clustering.labels).argmax()))

    def _tell_who_waits(self, names: list[str], room: int, grows: bool) -> None:
        if not self._has_told_who_waits:
            why = f"there is room for {room} more" if grows else "it has no method `grow` (fedgwc.core.protocols.Grows)"
            log.warning("clients cannot join: %s; they wait and do not train: %s", why, ", ".join(names)[:300])
        self._has_told_who_waits = True

    def evaluate(self, number: int, clustering: Clustering) -> dict[str, Any]:
        """Tell how the models that were sent did, as clients replied, and who answered."""
        tested, roster = np.array(self.engine.tested, np.float64).reshape(-1, 3), self.roster
        row: dict[str, Any] = {}
        if len(tested):
            loss, right, total = tested.T
            by_size = float(right.sum() / total.sum())
            row = {"accuracy": float((right / total).mean()), "accuracy_by_size": by_size}
            row |= {} if np.isnan(loss).any() else {"loss": float(loss.mean())}  # private
        clusters = {"clusters": len(clustering.models)}
        seen = {"clients": len(roster), "answered": self.engine.n_answered, "invalid": sum(roster.invalid.values())}
        return {**row, **seen, "excluded": len(roster.excluded), **clusters}

    def tell_excluded(self, clustering: Clustering) -> None:
        """Log how the run ended, and who was left out."""
        for client, why in self.roster.excluded.items():
            log.error("client %s was excluded: %s", self.roster.names[client], why)
        counts = len(self.roster), len(clustering.models), len(self.roster.excluded)
        log.info("finished: %d clients in %d clusters, %d excluded", *counts)
