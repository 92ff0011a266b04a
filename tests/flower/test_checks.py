"""No value and no bytes get past a check by surprise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedgwc.flower import checks
from fedgwc.flower.checks import Invalid

VALUES = st.one_of(st.integers(), st.floats(), st.text(max_size=5), st.lists(st.floats(), max_size=5), st.none(), st.booleans())


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES)
def test_no_value_gets_past_a_check_by_surprise(value: Any) -> None:
    record = {"v": value}
    for check in (checks.count, checks.number, checks.losses, checks.numbers, checks.counts):
        try:
            found = check(record, "v")
        except Invalid:
            continue
        if check in (checks.count, checks.counts):
            assert (np.asarray(found) >= 0).all()
        if check is not checks.numbers:
            assert np.isfinite(found).all()


@settings(max_examples=100)
@given(st.binary(max_size=600))
def test_no_bytes_get_past_the_array_check_by_surprise(data: bytes) -> None:
    with pytest.raises(Invalid):
        checks.array(Array("float32", (64,), "numpy.ndarray", data), (64,), np.dtype(np.float32))


def test_the_array_check_lets_honest_arrays_through() -> None:
    for honest in (np.arange(6.0), np.arange(6.0, dtype=np.float32).reshape(2, 3), np.array(2.0)):
        np.testing.assert_array_equal(checks.array(Array(honest), honest.shape, honest.dtype), honest)


@pytest.mark.parametrize("names", [None, [], "abc", [1], [""], ["a", "a"], ["x" * 201], ["a\nb"]])
def test_names_of_clients_are_checked(names: object) -> None:
    with pytest.raises(Invalid):
        checks.names(names)
