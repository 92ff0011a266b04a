"""Ctrl-C that loses nothing."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any


class PoliteInterrupt:
    """The first Ctrl-C lets the round in progress finish; the second one stops at once."""

    def __init__(self) -> None:
        self.asked = False
        self._old: Any = None

    def __enter__(self) -> PoliteInterrupt:
        try:
            self._old = signal.signal(signal.SIGINT, self._note)
        except ValueError:  # not in the main thread: whoever runs us handles signals
            self._old = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
