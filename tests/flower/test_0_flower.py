"""Says why, where everything else in this folder is left out."""

from __future__ import annotations

import pytest


def test_flower_is_there() -> None:
    pytest.importorskip("flwr", reason="Flower is not installed, so tests/flower is left out: the extra `flower` has it")
