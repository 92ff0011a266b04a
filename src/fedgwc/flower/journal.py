"""The run folder of a real federation: one line of metrics, one piece of trace and one checkpoint per round."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Generic

from fedgwc.core.protocols import Algorithm, State, state_type
from fedgwc.core.text import plural, readable
from fedgwc.core.types import Clustering, Costs, Ids
from fedgwc.flower.roster import Members, Roster
from fedgwc.flower.rounds import Rounds
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.recording import save_end, save_round

FATES = {"moved": "loses some", "confirmed": "keeps its own model", "rejoined": "is whole again"}  # what came of a division
log = logging.getLogger("fedgwc")


@dataclass(frozen=True)
class Checkpoint(Generic[State]):
    """Where a run stands, and who is in it."""

    state: State
    costs: Costs
    seconds: float
    members: Members


class Journal:
    """Everything up to a round is safe once `record` returns."""

    def __init__(self, folder: RunFolder, algorithm: Algorithm[Any]) -> None:
        self.folder, self.algorithm = folder, algorithm
        self._kind: Any = Checkpoint[state_type(algorithm)]  # type: ignore[misc]

    def restore(self, roster: Roster) -> tuple[int, Any] | None:
        """(rounds done, checkpoint), or None if the run was killed before its first one."""
        found: tuple[int, Checkpoint[Any]] | None = self.folder.restore(self._kind, "cpu", log.warning)
        if found is not None:
            done, saved = found
            roster.restore(saved.members)
            log.info("resuming after round %d with %d clients", done, len(roster))
        return found

    def record(self, number: int, names: Ids | None, state: Any, rounds: Rounds[Any], seconds: float) -> dict[str, Any]:
        """names [M]: of the clusters that trained in this round."""
        algorithm, folder, engine = self.algorithm, self.folder, rounds.engine
        seen = save_round(folder, algorithm, number, state, engine.reported, names)
        for verdict in seen.decisions:
            fate = "is divided" if verdict["divides"] else FATES.get(verdict["reason"], "stays whole")
            log.info("cluster %d of %d clients %s: %s", verdict["cluster"], verdict["clients"], fate, verdict["why"])
        row = {"round": number, **rounds.summary(), "clusters": len(algorithm.clustering(state).models)}
        row |= {**seen.numbers} | vars(engine.costs) | {"seconds": round(seconds, 3)}
        folder.log(row)
        members = engine.roster.save()
        folder.save_clients(engine.roster.class_counts(), members.sizes, None, readable(members.names))
        folder.checkpoint(number, Checkpoint(state, engine.costs, seconds, members))
        return row

    def finish(self, state: Any, clustering: Clustering, roster: Roster) -> None:
        """The tree, the matrices, and who belongs where."""
        save_end(self.folder, self.algorithm, state)
        self.folder.save_clusters(clustering.numbers[clustering.labels], None, roster.class_counts(), readable(roster.names))


def told(number: int, n_rounds: int, row: dict[str, Any]) -> None:
    """One line of log per round."""
    facts = f"{plural(row['answered'], 'answer')}, {plural(row['clusters'], 'cluster')}"
    facts += f", accuracy {row['accuracy']:.3f}" if "accuracy" in row else ""
    log.info("round %d of %d: %s", number, n_rounds, facts)
