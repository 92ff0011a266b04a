"""The `flwr` command, with exit codes that tell the truth: `flwr run` ends with 0 whether the run was completed or not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedgwc.errors import InputError

DONE = "finished:completed"


def flwr(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run one command and return what it says as JSON."""
    program = shutil.which("flwr", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise InputError("the command flwr is not there; install it with: pip install 'fedgwc[flower]'")
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
    """The last JSON object of an output that may begin with other lines."""
    start = text.find("{")
    try:
        found = json.loads(text[start:]) if start >= 0 else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def register(folder: Path) -> list[str]:
    """Make the nodes' public keys known to the SuperLink; returns what became of each."""
    outcomes = []
    for home in sorted((folder / "nodes").iterdir(), key=lambda p: (len(p.name), p.name)):
        try:
            answer = flwr(folder, "supernode", "register", str(home / "key.pub"), "tls")
            outcomes.append(f"{home.name}: registered as node {answer.get('node-id')}")
        except InputError as error:
            if "already" not in str(error):
                raise
            outcomes.append(f"{home.name}: is registered already")
    return outcomes


def nodes(folder: Path) -> list[dict[str, Any]]:
    """What the SuperLink knows of its nodes."""
    return [n for n in flwr(folder, "supernode", "list", "tls").get("nodes", []) if isinstance(n, dict)]


def start(folder: Path) -> int:
    """Submit the app; the number of its run."""
    answer = flwr(folder, "run", str(folder / "app"), "tls")
    return int(answer["run-id"])


def status(folder: Path, run: int) -> str:
    runs = flwr(folder, "ls", "tls", "--run-id", str(run)).get("runs", [])
    return str(runs[0].get("status", "unknown")) if runs else "unknown"


def wait(folder: Path, run: int, tell: Callable[[str], None], poll: float = 2.0) -> bool:
    """Follow a run to its end; True only if Flower says that it was completed."""
    last = ""
    while True:
        now = status(folder, run)
        if now != last:
            tell(f"run {run}: {now}")
            last = now
        if now.startswith("finished"):
            return now == DONE
        time.sleep(poll)
