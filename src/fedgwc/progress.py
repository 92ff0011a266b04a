"""Watching a run: a live line on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol


class Progress(Protocol):
    """Somebody who watches a run."""

    def start(self, title: str, n_rounds: int, done: int) -> None: ...
    def message(self, text: str) -> None: ...
    def round(self, number: int, loss: float, n_clusters: int) -> None: ...
    def evaluated(self, row: Mapping[str, Any]) -> None: ...
    def stop(self) -> None: ...


class Silent:
    """Nobody watches."""

    def start(self, title: str, n_rounds: int, done: int) -> None: ...
    def message(self, text: str) -> None: ...
    def round(self, number: int, loss: float, n_clusters: int) -> None: ...
    def evaluated(self, row: Mapping[str, Any]) -> None: ...
    def stop(self) -> None: ...


class MessagesOnly(Silent):
    """What has to be said is passed on; the rest somebody else shows."""

    def __init__(self, to: Progress) -> None:
        self.message = to.message  # type: ignore[method-assign]


class Lines:
    """One plain line now and then, for logs and pipes."""

    def __init__(self, every_seconds: float = 5.0) -> None:
        self.every = every_seconds
        self.accuracy = float("nan")

    def start(self, title: str, n_rounds: int, done: int) -> None:
        self.title, self.total, self.first = title, n_rounds, done
        self.began = self.spoke = time.monotonic()

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def round(self, number: int, loss: float, n_clusters: int) -> None:
        now = time.monotonic()
        if now - self.spoke < self.every and number < self.total:
            return
        self.spoke = now
        speed = (number - self.first) / max(now - self.began, 1e-9)
        left = (self.total - number) / speed
        self.message(
            f"{self.title}: round {number}/{self.total}  loss {loss:.3f}  accuracy {self.accuracy:.1%}  "
            f"clusters {n_clusters}  {speed:.0f} rounds/s  {left:.0f} s left"
        )

    def evaluated(self, row: Mapping[str, Any]) -> None:
        self.accuracy = row["accuracy"]

    def stop(self) -> None: ...


class Live:
    """A progress bar with what one wants to know: round, loss, accuracy, clusters, speed, time left."""

    def start(self, title: str, n_rounds: int, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        self.bar = Bar(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}", table_column=Column(no_wrap=True)),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
        )
        self.bar.start()
        self.task = self.bar.add_task(title, total=n_rounds, completed=done, facts="")
        self.began, self.first, self.drawn = time.monotonic(), done, 0.0
        self.accuracy = float("nan")

    def message(self, text: str) -> None:
        if hasattr(self, "bar"):
            self.bar.console.print(text)
        else:
            print(text, file=sys.stderr)

    def round(self, number: int, loss: float, n_clusters: int) -> None:
        now = time.monotonic()
        if now - self.drawn < 0.1 and number < (self.bar.tasks[0].total or 0):
            return
        self.drawn = now
        speed = (number - self.first) / max(now - self.began, 1e-9)
        facts = f"loss {loss:.3f}  acc {self.accuracy:.1%}  clusters {n_clusters}  {speed:.0f} rounds/s"
        self.bar.update(self.task, completed=number, facts=facts)

    def evaluated(self, row: Mapping[str, Any]) -> None:
        self.accuracy = row["accuracy"]

    def stop(self) -> None:
        self.bar.stop()


def watcher() -> Progress:
    """A live display where there is a terminal, plain lines where there is none."""
    return Live() if sys.stderr.isatty() else Lines()
