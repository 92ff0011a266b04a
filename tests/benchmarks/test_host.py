"""Benchmarks are not run by the tests, but they must run."""

from __future__ import annotations

import pytest
from benchmarks.host import bare


@pytest.mark.parametrize("algorithm", ["fedavg", "auto"])
def test_the_stand_in_for_training_answers_as_the_engine_does(algorithm: str) -> None:
    assert bare(algorithm, blocks=1) > 0
