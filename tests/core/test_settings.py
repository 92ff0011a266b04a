"""Settings of dataclasses: flat fields, what can be overridden, and what comes back as it was, for every algorithm."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.assignments import flatten, parse_assignment, parse_axis, set_path
from fedgwc.core.errors import InputError
from fedgwc.core.settings import FLAT, check_settable, convert, override, plain, setting_names
from fedgwc.core.work import LocalTraining


@dataclass(frozen=True)
class Oven:
    heat: int = 200


@dataclass(frozen=True)
class Filling:
    salt: float = 0.5
    kind: str = "apple"


@dataclass(frozen=True)
class Pie:
    """A flat field's settings stand beside its owner's; another dataclass is a table of its own."""

    filling: Filling = field(default_factory=Filling, metadata=FLAT)
    slices: int = 8
    oven: Oven = field(default_factory=Oven)


def test_flat_fields_by_hand() -> None:
    assert setting_names(Pie()) == ["salt", "kind", "slices", "oven"]
    assert plain(Pie()) == {"salt": 0.5, "kind": "apple", "slices": 8, "oven": {"heat": 200}}
    changed = override(Pie(), {"salt": 1, "oven": {"heat": 180}}, "pie")
    assert changed == Pie(Filling(salt=1.0), oven=Oven(180))
    assert override(Pie(), {}, "pie") == Pie()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sald": 1}, r"pie has no setting 'sald' \(did you mean salt\?\); it knows salt, kind, slices, oven"),
        ({"filling": {"salt": 1}}, "pie has no setting 'filling'"),  # by its own name it is not to be set
        ({"salt": "x"}, "pie.salt must be a number, got 'x'"),
        ({"oven": {"heet": 1}}, r"pie\.oven has no setting 'heet'"),
        (3, "pie must be a table of settings, got 3"),
    ],
    ids=str,
)
def test_what_cannot_be_set_is_named(settings: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        override(Pie(), settings, "pie")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_settings_come_back_as_they_were(name: str) -> None:
    """As JSON has them, over any other algorithm of the same make."""
    algorithm = ALGORITHMS[name]
    check_settable(algorithm, name)
    names, said = setting_names(algorithm), json.loads(json.dumps(plain(algorithm)))
    assert list(said) == names
    assert len(set(names)) == len(names)  # flat fields take nobody's name
    assert override(algorithm, said, name) == algorithm
    twins = [other for other in ALGORITHMS.values() if setting_names(other) == names]
    assert all(plain(override(other, said, name)) == plain(algorithm) for other in twins)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_setting_can_be_set_alone(name: str) -> None:
    algorithm = ALGORITHMS[name]
    for key, value in plain(algorithm).items():
        assert override(algorithm, {key: value}, name) == algorithm
    changed = override(algorithm, {"rate": 0.37, "server": {"lr": 0.25}}, name)
    was, now = flatten(plain(algorithm)), flatten(plain(changed))
    assert {key: now[key] for key in now if now[key] != was[key]} == {"rate": 0.37, "server.lr": 0.25}


# As text


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.1,0.5", [0.1, 0.5]),
        ("2,3,2", [2, 3]),
        ("rows,columns", ["rows", "columns"]),
        ("[8],[16,8]", [[8], [16, 8]]),
        ("1,1.0,true", [1, 1.0, True]),
        ('"a,b",c', ['"a', 'b"', "c"]),
    ],
)
def test_values_of_a_sweep(text: str, values: list[Any]) -> None:
    key, found = parse_axis(f"a.b={text}")
    assert (key, list(map(repr, found))) == ("a.b", list(map(repr, values)))


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a.b=1", ("a", "b"), 1),
        ("a=x y", ("a",), "x y"),
        ('a="x"', ("a",), "x"),
        ("a=[1, 2]", ("a",), [1, 2]),
        ("a=true", ("a",), True),
    ],
)
def test_assignments(text: str, path: tuple[str, ...], value: Any) -> None:
    assert parse_assignment(text) == (path, value)


@pytest.mark.parametrize("text", ["a", "=1", "a..b=1", ""])
def test_malformed_assignments(text: str) -> None:
    with pytest.raises(InputError, match="key=value"):
        parse_assignment(text)


@pytest.mark.parametrize("value", ["9" * 5000, "0x" + "f" * 5000, "[" * 5000], ids=["digits", "hexadecimal", "brackets"])
def test_values_that_python_cannot_read_or_print_are_refused(value: str) -> None:
    for parse in (parse_assignment, parse_axis):
        with pytest.raises(
            InputError, match=f"more digits or brackets than can be read; it begins .*{re.escape(value[:2])}"
        ) as caught:
            parse(f"rounds={value}")
        assert len(str(caught.value)) < 100


@pytest.mark.parametrize("hint", [int, float, str, tuple[int, ...], Literal["a"], LocalTraining])
def test_a_number_too_long_to_be_printed_is_refused_as_anything(hint: Any) -> None:
    with pytest.raises(InputError, match=r"x must be .* got a number of 20001 bits"):
        convert(1 << 20000, hint, "x")


def test_set_path_copies() -> None:
    old = {"a": {"b": [{"c": 1}]}}
    assert set_path(old, ("a", "b", "0", "c"), 2) == {"a": {"b": [{"c": 2}]}}
    assert old == {"a": {"b": [{"c": 1}]}}
