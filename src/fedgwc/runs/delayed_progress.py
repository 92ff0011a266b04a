"""Progress that is shown only for work that takes long."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fedgwc.runs.progress import Watcher

DELAY = 2.0  # seconds in which nobody asks how far something is
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class DelayedWatcher:
    """A watcher that passes work on to another once it takes long.

    Of work that is over sooner nothing is shown.
    """

    def __init__(self, other: Watcher, delay: float = DELAY) -> None:
        self.other, self.delay = other, delay
        self.shown_from: float | None = None  # from then on everything is shown, also what begins later
        self.shown = False  # of what goes on at the moment

    def start(self, title: str, n_rounds: int, done: int, folder: Path | None = None) -> None:
        self.title, self.n_rounds, self.folder, self.shown = title, n_rounds, folder, False
        if self.shown_from is None:
            self.shown_from = time.monotonic() + self.delay
        self._show_if_due(done)

    def message(self, text: str) -> None:
        self.other.message(text)

    def round(self, number: int, loss: float, n_clusters: int) -> None:
        if self._show_if_due(number):
            self.other.round(number, loss, n_clusters)

    def decided(self, number: int, decision: Mapping[str, Any]) -> None:
        self.other.decided(number, decision)

    def step(self, number: int) -> None:
        if self._show_if_due(number):
            self.other.step(number)

    def evaluated(self, row: Mapping[str, Any]) -> None:
        if self.shown:
            self.other.evaluated(row)

    def stop(self) -> None:
        if self.shown:
            self.other.stop()

    def _show_if_due(self, number: int) -> bool:
        if not self.shown and self.shown_from is not None and time.monotonic() >= self.shown_from:
            self.other.start(self.title, self.n_rounds, number, self.folder)  # its speed counts from here
            self.shown = True
        return self.shown


def map_with_progress(do: Callable[[Item], Outcome], items: Sequence[Item], title: str, progress: Watcher) -> list[Outcome]:
    """Apply `do` to every item and show the progress."""
    progress.start(title, len(items), 0)
    outcomes: list[Outcome] = []
    try:
        for item in items:
            outcomes.append(do(item))
            progress.step(len(outcomes))
        return outcomes
    finally:
        progress.stop()
