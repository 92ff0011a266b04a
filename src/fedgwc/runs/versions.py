"""Versions that a run was made with."""

from __future__ import annotations

import platform

import numpy as np
import torch

from fedgwc.core.version import VERSION


def versions() -> dict[str, str]:
    """Return the versions of the package and of what it computes with."""
    return {
        "fedgwc": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
    }
