"""Provenance of a run: command, commit, hardware, versions, date."""

from __future__ import annotations

import datetime
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from fedgwc.engines.settings import cores
from fedgwc.runs.versions import versions

UNKNOWN = "unknown"


def provenance(command: str) -> dict[str, Any]:
    """Return the provenance of this process, now."""
    return {
        "command": command,
        "commit": commit(),
        "hardware": hardware(),
        "versions": versions(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def commit() -> str:
    """Return the commit of the package's checkout.

    An installed package has none.
    """
    package = Path(__file__)
    if not _git(package.parent, "ls-files", package.name):  # a repository around a virtual environment is not ours
        return UNKNOWN
    return _git(package.parent, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or UNKNOWN


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def hardware() -> str:
    cpu = f"{cores()} CPU cores ({_cpu()})"
    if not torch.cuda.is_available():
        return cpu
    return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}, {cpu}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
