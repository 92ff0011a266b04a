"""The `flwr` command and what it answers; its own exit code is 0 also where a run failed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedgwc.core.errors import InputError
from fedgwc.flower.deploy.write import node_folders, read_plan
from fedgwc.io.atomic import write_atomically

DONE = "finished:completed"


def flwr(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run one command and return its JSON answer."""
    read_plan(folder)  # flwr would write its configuration into any folder
    program = shutil.which("flwr", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise InputError("the command flwr is not there; install fedgwc with its extra `flower`")
    quiet = {"FLWR_HOME": str((folder / "flwr").resolve()), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    done = subprocess.run(
        [program, *arguments, "--format", "json"], env={**os.environ, **quiet}, capture_output=True, text=True, check=False
    )
    found = _json(done.stdout)
    if found is None or not found.get("success", done.returncode == 0):
        said = (found or {}).get("error-message") or done.stderr or done.stdout
        raise InputError(f"flwr {arguments[0]} failed: {' '.join(said.split())[-300:]}")
    return found


def _json(text: str) -> dict[str, Any] | None:
    """Find the JSON object after an output's other lines."""
    start = text.find("{")
    try:
        found = json.loads(text[start:]) if start >= 0 else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def register(folder: Path) -> list[str]:
    """Register the nodes' public keys at the SuperLink; return each outcome.

    The numbers by which logs call the nodes go to nodes.json, since Flower tells each of them only once.
    """
    read_plan(folder)
    outcomes, path = [], folder / "nodes.json"
    numbers = _numbers(path)
    for home in sorted(node_folders(folder), key=lambda p: (len(p.name), p.name)):
        try:
            answer = flwr(folder, "supernode", "register", str(home / "key.pub"), "tls")
            outcomes.append(f"{home.name}: registered as node {answer.get('node-id')}")
            numbers[home.name] = str(answer.get("node-id"))
            write_atomically(path, (json.dumps(numbers, indent=2) + "\n").encode())
        except InputError as error:
            if "already" not in str(error):
                raise
            known = f" as node {numbers[home.name]}" if home.name in numbers else ""
            outcomes.append(f"{home.name}: is registered already{known}")
    return outcomes


def _numbers(path: Path) -> dict[str, str]:
    """Read the nodes' numbers that earlier calls wrote down."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        found = error
    if not isinstance(found, dict):
        raise InputError(f"{path} is damaged ({found!s:.100}); delete it: nodes stay registered, only their numbers are unknown")
    return found


def start(folder: Path) -> int:
    """Submit the app and return its run's number."""
    answer = flwr(folder, "run", str(folder / "app"), "tls")
    return int(answer["run-id"])


def command(folder: Path, what: str, run: int) -> str:
    """Write Flower's command about a run, for an operator to type."""
    return f"FLWR_HOME={shlex.quote(str((folder / 'flwr').resolve()))} flwr {what} {run} tls"


@dataclass(frozen=True)
class Status:
    """A run's status, as Flower reports it."""

    name: str
    details: str = ""

    @property
    def done(self) -> bool:
        """Tell whether the run was completed."""
        return self.name == DONE


def status(folder: Path, run: int) -> Status:
    """Ask the SuperLink for a run's status."""
    runs = flwr(folder, "ls", "tls", "--run-id", str(run)).get("runs", [])
    if not runs:
        raise InputError(f"the server does not know run {run}")
    details = str(runs[0].get("status-details", ""))
    return Status(str(runs[0].get("status", "unknown")), "" if details == "N/A" else details)


def wait(folder: Path, run: int, tell: Callable[[str], None], poll: float = 2.0, patience: float = 300.0) -> Status:
    """Follow a run to its end; retry the server for `patience` seconds."""
    last, heard = "", time.monotonic()
    while True:
        try:
            now = status(folder, run)
            heard = time.monotonic()
        except InputError as error:
            if time.monotonic() - heard >= patience:
                raise InputError(
                    f"run {run} may go on, but for {patience:.0f} s the server could not be asked: {error}"
                ) from None
            now = Status(f"the server cannot be asked, trying again ({error})")
        if now.name != last:
            tell(f"run {run}: {now.name}")
            last = now.name
        if now.name.startswith("finished"):
            return now
        time.sleep(poll)
