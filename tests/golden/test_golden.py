"""Every algorithm on every engine computes what it computed when `golden.json` was written, up to rounding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .freeze import KEPT, cases, rounded

CASES = dict(cases())
EXPECTED = json.loads(KEPT.read_text())


def test_every_case_is_kept() -> None:
    assert set(EXPECTED) >= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_results_are_as_they_were(name: str, tmp_path: Path) -> None:
    assert_close(rounded(CASES[name](tmp_path / "run")), EXPECTED[name], name)


def assert_close(found: Any, expected: Any, where: str) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key, value in expected.items():
            assert_close(found[key], value, f"{where}: {key}")
    elif isinstance(expected, list) and expected and isinstance(expected[0], int | float):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4, err_msg=where)
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, value in enumerate(expected):
            assert_close(found[i], value, f"{where}[{i}]")
    elif expected is None:  # private losses are unknown
        assert found is None, where
    else:
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-4), where
