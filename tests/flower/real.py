"""A real federation on this machine: its processes, and what a test wants to know of them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def toml(tables: dict[str, Any]) -> str:
    """Plain tables as TOML; JSON's scalars and lists are TOML's."""
    top = [f"{k} = {json.dumps(v)}" for k, v in tables.items() if not isinstance(v, dict)]
    rest = [
        f"[{k}]\n" + "\n".join(f"{n} = {json.dumps(x)}" for n, x in v.items()) for k, v in tables.items() if isinstance(v, dict)
    ]
    return "\n".join([*top, *rest, ""])


def until(what: str, true: Callable[[], Any], seconds: float) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.3)
    raise AssertionError(f"waited {seconds:g} s in vain until {what}")


class Processes:
    """What was started here, each in its own process group; all of it ends with the test."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir()

    def start(self, name: str, script: Path) -> None:
        env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        with (self.logs / name).open("wb") as out:
            self.running[name] = subprocess.Popen([str(script)], stdout=out, stderr=out, env=env, start_new_session=True)

    def log(self, name: str) -> str:
        return (self.logs / name).read_text(errors="replace")

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        process = self.running.pop(name)
        groups = {os.getpgid(pid) for pid in [process.pid, *offspring(process.pid)] if alive(pid)}
        for group in groups:
            os.killpg(group, number)
        process.wait(20)

    def end(self) -> None:
        for name in list(self.running):
            self.kill(name)


@contextmanager
def processes(logs: Path) -> Iterator[Processes]:
    made = Processes(logs)
    try:
        yield made
    finally:
        made.end()


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def offspring(pid: int) -> list[int]:
    """All processes that descend from one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(re.sub(r".*\) \S ", "", stat.read_text()).split()[0])
        except (OSError, ValueError):
            continue
    found, layer = [], [pid]
    while layer:
        layer = [child for child, parent in parents.items() if parent in layer]
        found += layer
    return found


def named(pids: list[int], name: str) -> list[int]:
    def command(pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            return ""

    return [pid for pid in pids if name in command(pid)]


def answers(port: int, ca: Path) -> bool:
    context = ssl.create_default_context(cafile=str(ca))
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as raw, context.wrap_socket(raw, server_hostname="127.0.0.1"):
            return True
    except OSError:
        return False
