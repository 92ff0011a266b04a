"""Runs that are stopped halfway, and what they leave."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, Protocol

from tests.conftest import Listener


class StopAfter(Listener):
    """Keeps the messages, and presses Ctrl-C at a round."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def round(self, number: int, loss: float, n_clusters: int) -> None:
        if number == self.number:
            signal.raise_signal(signal.SIGINT)


class Stopped(Protocol):
    """The folder of a run of 6 rounds that was stopped after 4, with checkpoints of rounds 3 and 4."""

    def __call__(self, name: str = "r", **changes: Any) -> Path: ...


def metrics(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.endswith("seconds") and k != "peak_memory_bytes"} for row in rows]
