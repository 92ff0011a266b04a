"""A virtual environment for the packages that speed is measured against, made on first use and kept out of ours."""

from __future__ import annotations

import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

PLACE = Path(__file__).parents[1] / ".venv-bench"
PACKAGES = ("pfl==0.6.0", "flwr[simulation]==1.41.0")


def python_of_others() -> str:
    python, finished = PLACE / "bin/python", PLACE / "finished"
    if not finished.exists():
        print(f"installing {', '.join(PACKAGES)} into {PLACE.name}", flush=True)
        venv.create(PLACE, clear=True, with_pip=True)
        # The same PyTorch as ours, and what our models import.
        torch = f"torch=={version('torch').split('+')[0]}"
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        if subprocess.run([*pip, torch, "safetensors", *PACKAGES]).returncode:
            sys.exit("the packages to compare with could not be installed; see pip's message above")
        finished.touch()
    return str(python)
