"""Progress: a live line on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

ROUNDS_TO_TELL = 3  # rounds after the first from which a speed is worth telling
BAR, LEFT = 12, 7  # characters of a progress bar, and of the time that is left


class Watcher(Protocol):
    """Shows a run, or something that has steps and no rounds.

    `folder` is the run's, which is there from the start to the stop and has its results before the stop.
    """

    def start(self, title: str, n_rounds: int, done: int, folder: Path | None = None) -> None: ...
    def message(self, text: str) -> None: ...
    def round(self, number: int, loss: float, n_clusters: int) -> None: ...
    def decided(self, number: int, decision: Mapping[str, Any]) -> None: ...
    def step(self, number: int) -> None: ...
    def evaluated(self, row: Mapping[str, Any]) -> None: ...
    def stop(self) -> None: ...


class Silent:
    """A watcher that shows nothing."""

    def start(self, title: str, n_rounds: int, done: int, folder: Path | None = None) -> None: ...
    def message(self, text: str) -> None: ...
    def round(self, number: int, loss: float, n_clusters: int) -> None: ...
    def decided(self, number: int, decision: Mapping[str, Any]) -> None: ...
    def step(self, number: int) -> None: ...
    def evaluated(self, row: Mapping[str, Any]) -> None: ...
    def stop(self) -> None: ...


SILENT = Silent()


class MessagesOnly(Silent):
    """A watcher that passes on messages only."""

    def __init__(self, to: Watcher) -> None:
        self.message = to.message  # type: ignore[method-assign]


class Pace:
    """Speed of rounds.

    The first one does not count: it also makes things ready.
    """

    def __init__(self, n_rounds: int) -> None:
        self.total, self.first, self.number = n_rounds, -1, -1
        self.began = self.now = 0.0

    def round(self, number: int) -> None:
        self.number, self.now = number, time.monotonic()
        if self.first < 0:
            self.first, self.began = number, self.now

    @property
    def speed(self) -> float | None:
        """Return rounds per second; None: too early to tell."""
        passed = self.number - self.first
        return passed / max(self.now - self.began, 1e-9) if passed >= ROUNDS_TO_TELL else None

    @property
    def left(self) -> float | None:
        """Return the seconds that are left."""
        return None if self.speed is None else (self.total - self.number) / self.speed


class Facts(NamedTuple):
    """A run's progress in a few words each.

    Something without a loss has no rounds, and only its position is known.
    """

    number: int
    loss: float | None = None
    n_clusters: int = 0
    accuracy: float | None = None

    @property
    def unit(self) -> str:
        return "" if self.loss is None else "round "

    def words(self, pace: Pace) -> list[str]:
        """Return the facts in words, the most important first."""
        if self.loss is None:
            return []
        accuracy = [] if self.accuracy is None else [f"accuracy {self.accuracy:.1%}"]
        words = [*accuracy, f"loss {short(self.loss)}", f"clusters {self.n_clusters}"]
        return words if pace.speed is None else [*words, speed_text(pace.speed)]


def short(x: float) -> str:
    """Format a loss briefly, also of a run that diverges."""
    return "–" if math.isnan(x) else f"{x:.3f}" if abs(x) < 1000 else f"{x:.1e}"


def speed_text(speed: float) -> str:
    return f"{speed:.0f} rounds/s" if speed >= 1 else f"{1 / speed:.1f} s/round"


def time_text(seconds: float) -> str:
    rounded = round(seconds)
    return f"{rounded} s" if rounded < 100 else f"{rounded // 3600}:{rounded // 60 % 60:02}:{rounded % 60:02}"


class Display:
    """Progress shown now and then: the common part of plain and live display."""

    every: float  # seconds
    pace: Pace
    shown: float  # when it was shown last
    facts: Facts | None = None  # None: there is nothing new to show
    accuracy: float | None = None

    def round(self, number: int, loss: float, n_clusters: int) -> None:
        self._passed(Facts(number, loss, n_clusters, self.accuracy))

    def decided(self, number: int, decision: Mapping[str, Any]) -> None:
        """Ignore decisions: they are in the run's folder, and too many for a line."""

    def step(self, number: int) -> None:
        self._passed(Facts(number))

    def evaluated(self, row: Mapping[str, Any]) -> None:
        self.accuracy = row["accuracy"]
        if self.facts is not None:
            self.facts = self.facts._replace(accuracy=self.accuracy)

    def _passed(self, facts: Facts) -> None:
        self.pace.round(facts.number)
        self.facts = facts
        if self._is_due():
            self._show()

    def _is_due(self) -> bool:
        return time.monotonic() - self.shown >= self.every

    def _show(self) -> None:
        raise NotImplementedError


class Lines(Display):
    """Plain lines now and then, for logs and pipes."""

    every = 5.0

    def start(self, title: str, n_rounds: int, done: int, folder: Path | None = None) -> None:
        self.title, self.pace, self.shown = title, Pace(n_rounds), time.monotonic()

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Show the last round, now that its models have been evaluated."""
        self._show()

    def _is_due(self) -> bool:
        return super()._is_due() and self.pace.number < self.pace.total

    def _show(self) -> None:
        if self.facts is None:
            return
        place = f"{self.facts.unit}{self.facts.number}/{self.pace.total}"
        words = [f"{self.title}: {place}", *self.facts.words(self.pace)]
        if self.pace.left:
            words.append(f"{time_text(self.pace.left)} left")
        self.message("  ".join(words))
        self.facts, self.shown = None, time.monotonic()


class Live(Display):
    """A progress bar: round, time left, accuracy, loss, clusters, speed.

    As far as there is room.
    """

    every = 0.1

    def start(self, title: str, n_rounds: int, done: int, folder: Path | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        console = Console(stderr=True)
        n = len(str(n_rounds))
        bar: list[ProgressColumn] = [BarColumn(bar_width=BAR)] if console.width >= 72 else []
        self.bar = Bar(
            TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis")),
            *bar,
            MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=2 * n + 1)),
            TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True, min_width=LEFT)),
            TextColumn("{task.fields[facts]}", table_column=Column(no_wrap=True)),
            console=console,
        )
        self.bar.start()
        self.task = self.bar.add_task(title, total=n_rounds, completed=done, facts="")
        self.room = console.width - len(title) - len(bar) * (BAR + 1) - (2 * n + 2) - (LEFT + 1) - 1
        self.pace, self.shown = Pace(n_rounds), 0.0
        self.facts = self.accuracy = None

    def message(self, text: str) -> None:
        if hasattr(self, "bar"):
            self.bar.console.print(text)
        else:
            print(text, file=sys.stderr)

    def stop(self) -> None:
        self._show()
        self.bar.stop()

    def _show(self) -> None:
        if self.facts is not None:
            self.bar.update(self.task, completed=self.facts.number, facts=fitting(self.facts.words(self.pace), self.room))
            self.shown = time.monotonic()


def fitting(words: Sequence[str], room: int) -> str:
    """Return as many words, from the first on, as fit the width."""
    while words and len("  ".join(words)) > room:
        words = words[:-1]
    return "  ".join(words)


def watcher() -> Watcher:
    """Choose a live display on a terminal, else plain lines."""
    return Live() if sys.stderr.isatty() else Lines()
