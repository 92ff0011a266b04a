"""Child processes that may die: forked from a warm parent, so that a run starts in milliseconds."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable


def start(work: Callable[[], object]) -> int:
    """Do `work` in a child; its process id. What the child raises ends in exit status 1."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def end(pid: int) -> int:
    """Wait for a child: its exit status, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_after(pid: int, seconds: float) -> int:
    """SIGKILL for a child that is still there after `seconds`."""
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)  # it is not reaped yet, so the number is still its own
    return end(pid)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
