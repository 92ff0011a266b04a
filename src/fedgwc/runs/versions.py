"""Versions of the package and its dependencies."""

from __future__ import annotations

import platform

import numpy as np
import torch

from fedgwc.core.version import VERSION


def versions() -> dict[str, str]:
    """Return the versions of the package and its numerical libraries."""
    return {
        "fedgwc": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
    }
