"""Progress that is shown only for work that takes long."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fedgwc.runs.progress import Watcher

PATIENCE = 2.0  # seconds in which nobody asks how far something is
Item = TypeVar("Item")
Made = TypeVar("Made")


class Patient:
    """A watcher that passes work on to another once it takes long.

    Of work that is over sooner nothing is shown.
    """

    def __init__(self, other: Watcher, patience: float = PATIENCE) -> None:
        self.other, self.patience = other, patience
        self.ends: float | None = None  # from then on everything is shown, also what begins later
        self.shown = False  # of what goes on at the moment

    def start(self, title: str, n_rounds: int, done: int, folder: Path | None = None) -> None:
        self.title, self.n_rounds, self.folder, self.shown = title, n_rounds, folder, False
        if self.ends is None:
            self.ends = time.monotonic() + self.patience
        self._look(done)

    def message(self, text: str) -> None:
        self.other.message(text)

    def round(self, number: int, loss: float, n_clusters: int) -> None:
        if self._look(number):
            self.other.round(number, loss, n_clusters)

    def decided(self, number: int, decision: Mapping[str, Any]) -> None:
        self.other.decided(number, decision)

    def step(self, number: int) -> None:
        if self._look(number):
            self.other.step(number)

    def evaluated(self, row: Mapping[str, Any]) -> None:
        if self.shown:
            self.other.evaluated(row)

    def stop(self) -> None:
        if self.shown:
            self.other.stop()

    def _look(self, number: int) -> bool:
        if not self.shown and self.ends is not None and time.monotonic() >= self.ends:
            self.other.start(self.title, self.n_rounds, number, self.folder)  # its speed counts from here
            self.shown = True
        return self.shown


def each(do: Callable[[Item], Made], items: Sequence[Item], title: str, progress: Watcher) -> list[Made]:
    """Apply `do` to every item and show the progress."""
    progress.start(title, len(items), 0)
    made: list[Made] = []
    try:
        for item in items:
            made.append(do(item))
            progress.step(len(made))
        return made
    finally:
        progress.stop()
