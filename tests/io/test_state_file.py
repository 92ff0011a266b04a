"""What a state may hold comes back as it was; anything else is refused when it is written, not when it is missed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedgwc.core.errors import InputError
from fedgwc.io.state_file import pack, unpack


@dataclass(frozen=True)
class Inner:
    at: Any


@dataclass(frozen=True)
class Mixed:
    pair: tuple[Inner, float]
    many: tuple[int, ...]
    table: dict[str, Inner]
    maybe: Inner | None
    scalar: Any


def test_a_state_comes_back_as_it_was() -> None:
    state = Mixed((Inner(1), 2.5), (1, 2, 3), {"a": Inner("b")}, None, np.array(7.0))
    again = unpack(pack(state), Mixed)
    assert again == state
    assert again.scalar.shape == ()


@pytest.mark.parametrize("value", [[1, 2], {1, 2}, object()])
def test_what_would_not_come_back_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(value).__name__}"):
        pack(Inner(value))


def test_what_the_annotation_leaves_open_is_refused() -> None:
    with pytest.raises(InputError, match="does not say what is in it"):
        unpack(pack(Inner((1, 2))), Inner)
