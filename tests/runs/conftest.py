"""What tests of runs share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedgwc.runs.loop import run
from tests.conftest import Small
from tests.runs.stopped import StopAfter, Stopped


@pytest.fixture
def stopped(small: Small, tmp_path: Path) -> Stopped:
    """Return the function that makes such runs."""

    def make(name: str = "r", **changes: Any) -> Path:
        job = small(rounds=6, evaluate={"checkpoint_seconds": 0.0}, **changes)
        run(job, tmp_path / name, progress=StopAfter(4))
        return tmp_path / name

    return make
