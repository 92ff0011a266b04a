"""A run's progress in the server app's log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgwc.core.text import plural
from fedgwc.runs.progress import Silent

OUTCOMES = {"moved": "loses some", "confirmed": "keeps its own model", "rejoined": "is whole again"}  # what came of a division
log = logging.getLogger("fedgwc")


class LogProgress(Silent):
    """One line of log per round, and one for every decision."""

    n_rounds = 0

    def start(self, title: str, n_rounds: int, done: int, folder: Path | None = None) -> None:
        self.n_rounds = n_rounds
        if done:
            log.info("going on after round %d", done)

    def message(self, text: str) -> None:
        log.warning("%s", text)

    def decided(self, number: int, decision: Mapping[str, Any]) -> None:
        outcome = "is divided" if decision["divides"] else OUTCOMES.get(decision["reason"], "stays whole")
        log.info("cluster %d of %d clients %s: %s", decision["cluster"], decision["clients"], outcome, decision["why"])

    def evaluated(self, row: Mapping[str, Any]) -> None:
        facts = f"{plural(row['answered'], 'answer')}, {plural(row['clusters'], 'cluster')}"
        facts += f", accuracy {row['accuracy']:.3f}" if "accuracy" in row else ""
        log.info("round %d of %d: %s", row["round"], self.n_rounds, facts)


def show_log() -> None:
    """Show the log in the app's output."""
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("fedgwc %(levelname)s: %(message)s"))
        log.addHandler(handler)
    log.setLevel(logging.INFO)
