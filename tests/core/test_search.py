"""Search spaces: as they are declared, typed and read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import pytest

from fedgwc.core.errors import InputError
from fedgwc.core.search import Between, OneOf, Search, declared, parse_search
from fedgwc.core.settings import FLAT


@dataclass(frozen=True)
class Inner:
    rate: Annotated[float, "a rate", Between(0.1, 1.0, log=True)] = 0.0


@dataclass(frozen=True)
class Outer:
    k: Annotated[int, "groups", Between(2, 8)] = 3
    kind: Annotated[str, "a kind", OneOf(("a", "b"))] = "a"
    fixed: Annotated[int, "nothing to search"] = 1
    inner: Inner = field(default_factory=Inner)
    flat: Inner = field(default_factory=lambda: Inner(0.5), metadata=FLAT)


def test_spaces_stand_at_the_settings_of_a_dataclass_and_of_its_parts() -> None:
    found = {key: (str(search), value) for key, (search, value) in declared(Outer()).items()}
    assert found == {
        "k": ("2..8", 3),
        "kind": ("a,b", "a"),
        "inner.rate": ("log:0.1..1", 0.0),
        "rate": ("log:0.1..1", 0.5),
    }


@pytest.mark.parametrize(
    ("text", "search"),
    [
        ("2..8", Between(2, 8)),
        (" 0.5 .. 2 ", Between(0.5, 2)),
        ("log:1e-3..1", Between(0.001, 1, log=True)),
        ("-1..1", Between(-1, 1)),
        ("a, b,a", OneOf(("a", "b"))),
        ("1,2.5,true", OneOf((1, 2.5, True))),
        ("7", OneOf((7,))),
    ],
)
def test_spaces_as_they_are_typed(text: str, search: Search) -> None:
    assert parse_search(text) == search


@pytest.mark.parametrize("text", ["", "2..", "..3", "a..b", "log:1,2", "log:5", "true..3"])
def test_spaces_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match=r"a space is written LOW\.\.HIGH"):
        parse_search(text)


@pytest.mark.parametrize(
    ("text", "message"), [("8..2", "from a lower to a higher"), ("log:0..1", "begins above 0"), ("1..inf", "from")]
)
def test_ranges_that_are_empty(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_search(text)


def test_the_nearest_value_lies_in_the_space() -> None:
    for search in (Between(2, 8), OneOf((2, 5))):
        for value in (0, 2, 5, 99, None, "x"):
            assert search.nearest(value) in search
    assert [Between(2, 8).nearest(x) for x in (0, 5, 99, None)] == [2, 5, 8, 2]


def test_a_range_of_a_setting_with_fractions_has_fractions() -> None:
    assert Between(1, 2).is_whole
    assert not Between(1, 2).like(0.1).is_whole
    assert Between(1, 2).like(None).is_whole
