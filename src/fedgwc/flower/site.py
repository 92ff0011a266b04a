"""A site whose clients are on the nodes of a Flower grid: connections, joining, and rounds that get too few answers."""

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
from fedgwc.flower.engine import FlowerEngine
from fedgwc.flower.identity import DataDescription
from fedgwc.flower.mailbox import Mailbox
from fedgwc.flower.node_tracker import NodeTracker, ReadIdentity
from fedgwc.flower.options import Options
from fedgwc.flower.roster import Members, Roster
from fedgwc.runs.site import Clients, Site

log = logging.getLogger("fedgwc")


class NodesSite(Site[Members]):
    """Clients on real nodes; subclasses say what they are asked and how a model travels."""

    engine: FlowerEngine
    memory_type = Members
    in_place = False  # a round that gets too few answers is tried again from the same state
    keeps_meeting_clients = True

    def __init__(
        self,
        grid: Grid,
        options: Options,
        read_identity: ReadIdentity,
        data: DataDescription | None = None,
        n_recipe_clients: int | None = None,
    ) -> None:
        self.grid, self.options, self.roster = grid, options, Roster(options.strikes)
        mailbox = Mailbox(grid, options.poll)
        self.tracker = NodeTracker(mailbox, self.roster, read_identity, data, n_recipe_clients, options.max_clients)
        self._has_warned = False

    @abstractmethod
    def build_engine(self) -> FlowerEngine:
        """Build the engine, now that the clients' data are known."""

    # Beginning

    def recall(self, memory: Members) -> None:
        self.roster.restore(memory)
        log.info("resuming with %d clients", len(self.roster))

    def remember(self) -> Members:
        return self.roster.save()

    def gather(self, resumed: bool) -> None:
        if not resumed:
            log.info("waiting for %d clients", self.options.min_clients)
        self.tracker.gather(self.options, resumed=resumed)
        self.engine = self.build_engine()
        if not resumed:
            self._add(self.tracker.sorted_newcomers())

    @property
    def n_clients(self) -> int:
        return len(self.roster)

    def _add(self, names: list[str]) -> None:
        """Give newcomers their numbers."""
        self.roster.add(names)
        for name in names:
            del self.tracker.newcomers[name]

    def clients(self) -> Clients:
        counts = self.roster.class_counts()
        known = None if counts is None else counts.astype(np.float64)
        return Clients(self.roster.save().sizes, known, None, readable(self.roster.names))

    # Rounds

    def enter(self, number: int, algorithm: Algorithm[State], state: State) -> State:
        """Update connections, admit newcomers, and tell the engine who may stand in."""
        self.roster.round = number
        self._wait_for_enough(number)
        state = self._admit_newcomers(number, algorithm, state)
        labels = algorithm.clustering(state).labels.copy()
        if isinstance(algorithm, HoldsBack):
            labels[algorithm.held_back(state)] = -1  # these stand in for nobody
        self.engine.begin_round(number, labels)
        return state

    def again(self, number: int, attempt: int, reason: TooFewReplies) -> None:
        options = self.options
        self.roster.resting_until.clear()  # everybody is needed
        log.warning("round %d, attempt %d of %d: %s; nothing changed", number, attempt, options.retries, reason)
        if attempt >= options.retries:
            raise InputError(
                f"round {number} got too few replies {options.retries} times in a row; the run stands at round {number - 1}: "
                "bring nodes back and start it again, or lower min-replies"
            )
        time.sleep(options.pause)

    def _wait_for_enough(self, number: int) -> None:
        """Wait for as many clients as a model needs."""
        options, tracker, began = self.options, self.tracker, time.monotonic()
        tracker.update()
        if tracker.n_present < options.min_replies:
            self.roster.resting_until.clear()  # everybody is needed
        if tracker.n_present < options.min_replies:
            log.warning("round %d waits: %d clients are there, %d are needed", number, tracker.n_present, options.min_replies)
        while tracker.n_present < options.min_replies:
            if time.monotonic() - began > options.wait:
                raise InputError(
                    f"round {number}: {tracker.n_present} clients came back within {options.wait:g} s, {options.min_replies} are "
                    f"needed; the run stands at round {number - 1}: bring nodes back and start it again, or lower min-replies"
                )
            time.sleep(options.poll)
            tracker.update()

    def _admit_newcomers(self, number: int, algorithm: Algorithm[State], state: State) -> State:
        """Let newcomers join the cluster whose model has the lowest training loss.

        Where these losses are private they join the largest cluster. Those who do not answer wait, and those for whom the
        algorithm has no room.
        """
        names = [n for n in self.tracker.sorted_newcomers() if self.roster.is_reachable(self.tracker.newcomers[n])]
        room = algorithm.room(state) if isinstance(algorithm, Grows) else 0
        if room is not None and len(names) > room:
            self._warn_who_waits(names[room:], room, isinstance(algorithm, Grows))
            names = names[:room]
        if not names or not isinstance(algorithm, Grows):
            return state
        rows = self._clusters_for(number, names, algorithm.clustering(state))
        joined = [name for name in names if name in rows]
        for name in joined:
            log.info("round %d: client %s joins cluster %d as number %d", number, name, rows[name], len(self.roster))
            self._add([name])
        grown: State = algorithm.grow(state, np.array([rows[name] for name in joined], np.int64)) if joined else state
        return grown

    def _clusters_for(self, number: int, names: list[str], clustering: Clustering) -> dict[str, int]:
        """Choose a cluster for each newcomer that answers."""
        if len(clustering.models) > 1 and self.engine.wire.compares_models:
            self.engine.begin_round(number, clustering.labels)
            return {name: int(loss.argmin()) for name, loss in self.engine.losses(names, clustering.models).items()}
        return dict.fromkeys(names, int(np.bincount(clustering.labels).argmax()))

    def _warn_who_waits(self, names: list[str], room: int, grows: bool) -> None:
        if not self._has_warned:
            why = f"there is room for {room} more" if grows else "it has no method `grow` (fedgwc.core.protocols.Grows)"
            log.warning("clients cannot join: %s; they wait and do not train: %s", why, ", ".join(names)[:300])
        self._has_warned = True

    def evaluate(self, number: int, clustering: Clustering) -> dict[str, Any]:
        """Return test scores of the models sent, and numbers of answers."""
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

    def log_end(self, clustering: Clustering) -> None:
        """Log how the run ended, and which clients were excluded."""
        for client, why in self.roster.excluded.items():
            log.error("client %s was excluded: %s", self.roster.names[client], why)
        counts = len(self.roster), len(clustering.models), len(self.roster.excluded)
        log.info("finished: %d clients in %d clusters, %d excluded", *counts)
