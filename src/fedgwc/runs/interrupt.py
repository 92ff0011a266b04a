"""Ctrl-C and SIGTERM without loss of work or a traceback."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any, NoReturn, TypeVar

from fedgwc.core.errors import InputError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = "Interrupted."
Returned = TypeVar("Returned")
_received: list[int] = []  # the signals so far, for the exit code that shells expect
_raised: list[int] = []  # those of them that broke off what was going on


class PoliteInterrupt:
    """A handler that lets the round finish at the first Ctrl-C or SIGTERM.

    The second Ctrl-C stops at once.

    If SIGTERM had its default action, it is raised again once all is saved. It never counts as the second one: a job's end is
    often told to every process, and once more by those that started others.
    """

    def __init__(self) -> None:
        self.asked = False
        self._to_end = False
        self._old: dict[int, Any] = {}

    def __enter__(self) -> PoliteInterrupt:
        self._old = _handled(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        _restore(self._old)
        if self._to_end and self._old.get(signal.SIGTERM) == signal.SIG_DFL:
            signal.raise_signal(signal.SIGTERM)

    def _note(self, number: int, frame: FrameType | None) -> None:
        _received.append(number)
        if self.asked and number == signal.SIGINT:
            _break_off(number)
        self.asked, self._to_end = True, self._to_end or number == signal.SIGTERM


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn both signals into KeyboardInterrupt while commands run.

    Or end the process where nothing has begun yet.
    """
    old = _handled(_end)
    try:
        yield
    finally:
        _restore(old)


def exit_when_interrupted(command: Callable[..., Returned]) -> Callable[..., Returned]:
    """Make a command end in one line and an exit code when interrupted.

    The line is the KeyboardInterrupt's own text if it has one.
    """

    @wraps(command)
    def guarded(*args: Any, **settings: Any) -> Returned:
        _received.clear()
        _raised.clear()
        try:
            return command(*args, **settings)
        except KeyboardInterrupt as interrupt:
            _say_and_exit(str(interrupt) or INTERRUPTED)
        except (InputError, OSError):  # these have something to say, such as that a checkpoint found no room
            raise
        except Exception:
            if not _raised:
                raise
            _say_and_exit(INTERRUPTED)  # libraries make errors of their own of an interrupt, most of all while they load

    return guarded


def _end(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    if _is_loading(frame):  # an exception in the midst of an import ends in anything but that exception
        os.write(2, b"Interrupted before anything had begun.\n")
        os._exit(128 + number)
    _break_off(number)


def _break_off(number: int) -> NoReturn:
    _raised.append(number)
    raise KeyboardInterrupt


def _is_loading(frame: FrameType | None) -> bool:
    """Tell whether the command itself is being imported.

    Nothing is at stake then, unlike at imports in the midst of its work.
    """
    inner = ""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if inner == "importlib._bootstrap" and name in ("fedgwc.cli.app", "fedgwc.__main__", "fedgwc.runs.plugins", "__main__"):
            return True
        inner, frame = name, frame.f_back
    return False


def _say_and_exit(text: str) -> NoReturn:
    echoed = "\n" if sys.stderr.isatty() else ""  # a terminal shows ^C
    print(f"{echoed}{text}", file=sys.stderr, flush=True)
    sys.exit(128 + (_received[-1] if _received else signal.SIGINT))


def _handled(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Install a handler for both signals and return the former ones.

    None outside the main thread: whoever runs us handles them.
    """
    try:
        return {number: signal.signal(number, handler) for number in SIGNALS}
    except ValueError:
        return {}


def _restore(old: dict[int, Any]) -> None:
    for number, handler in old.items():
        if handler is not None:  # None: a handler that Python does not know
            signal.signal(number, handler)
