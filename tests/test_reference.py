"""What can be set: as the code says it, as `fedgwc list NAME` shows it, and as docs/reference.md has it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from fedgwc.algorithms import ALGORITHMS, idle
from fedgwc.cli import main
from fedgwc.data import DATASETS, Group
from fedgwc.experiment import load, recipes
from fedgwc.models import MODELS
from fedgwc.reference import FROM_DATA, TABLES, Setting, data_settings, settings_of, type_text, value_text
from fedgwc.settings import flatten

EVERY: dict[str, list[Setting]] = {
    **{name: settings_of(algorithm) for name, algorithm in ALGORITHMS.items()},
    **{f"data {name}": data_settings(build) for name, build in DATASETS.items()},
    **{f"model {name}": settings_of(build, FROM_DATA) for name, build in MODELS.items()},
    **{name: settings_of(table) for name, table in TABLES.items()},
    "group": settings_of(Group),
}


@dataclass(frozen=True)
class Inner:
    a: Annotated[int, "of the inner one"] = 1


@dataclass(frozen=True)
class Outer:
    wanted: Annotated[str, "no default"]
    inner: Inner = Inner()
    plain: float = 1e-5


def test_settings_by_hand() -> None:
    assert settings_of(Outer) == [
        Setting("wanted", "text", "required", "no default"),
        Setting("inner.a", "whole number", "1", "of the inner one"),
        Setting("plain", "number", "1e-5", ""),
    ]
    assert settings_of(Outer("x", Inner(3)), ["plain"])[1:] == [Setting("inner.a", "whole number", "3", "of the inner one")]


def test_types_and_values_by_hand() -> None:
    assert type_text(tuple[Group, ...] | None) == "list of tables"
    assert type_text(tuple[int, ...]) == "list of whole numbers"
    assert value_text((Group(85), Group(15, relabel=1))) == "[{clients=85}, {clients=15, relabel=1}]"
    assert [value_text(v) for v in (True, None, "a", 0.1, 20000.0, ())] == ["true", "–", "a", "0.1", "20000", "[]"]


@pytest.mark.parametrize("name", EVERY)
def test_every_setting_has_a_type_and_a_meaning(name: str) -> None:
    assert [s.name for s in EVERY[name] if not s.type or not s.meaning] == []


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_settings_are_those_that_a_run_records(name: str) -> None:
    recorded = flatten(load("digits", [f"algorithm.name={name}"]).to_json()["algorithm"])
    assert {s.name for s in EVERY[name]} == recorded.keys() - {"name"}
    for s in EVERY[name]:
        assert s.default == value_text(recorded[s.name])


@pytest.fixture
def listed(capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[int, str, str]]:
    def show(name: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["list", name])
        return int(end.value.code or 0), *capsys.readouterr()

    return show


@pytest.mark.parametrize("name", [*ALGORITHMS, *DATASETS, *MODELS, *TABLES])
def test_list_shows_every_setting(name: str, listed: Any) -> None:
    code, out, _ = listed(name)
    assert code == 0
    settings = EVERY.get(name) or EVERY.get(f"data {name}") or EVERY[f"model {name}"]
    unused = idle(ALGORITHMS[name]) if name in ALGORITHMS else frozenset()
    for s in settings:
        line = rf"^{re.escape(s.name)} +{re.escape(s.type)} +{re.escape(s.default)} +{re.escape(s.meaning)} *$"
        assert bool(re.search(line, out, re.M)) == (s.name not in unused), s
    assert out.count("Without effect beside these: ") == bool(unused)


@pytest.mark.parametrize("name", recipes())
def test_list_shows_a_recipe_as_it_stands(name: str, listed: Any) -> None:
    assert recipes()[name].read_text(encoding="utf-8") in listed(name)[1]


def test_list_says_what_else_there_is(listed: Any) -> None:
    assert "Recipe digits" in listed("digits")[1]
    assert "Data set digits" in listed("digits")[1]
    assert "data.groups.0.KEY=VALUE" in listed("mnist")[1]
    assert "local.prox=0.01" in listed("fedprox")[1]
    assert "It has no settings." in listed("cnn")[1]
    assert "model.name is one of mlp, cnn" in listed("model")[1]
    assert listed("fedgcw") == (2, "", "fedgwc: nothing is called 'fedgcw' (did you mean fedgwc?); `fedgwc list` has the names\n")


def test_settings_that_are_shown_can_be_set() -> None:
    job = load("digits", ["ifca.aggregator.momentum=0.5", "algorithm.name=ifca", "data.groups.0.relabel=2", "data.seed=3"])
    assert job.algorithm.aggregator.momentum == 0.5  # type: ignore[attr-defined]


def test_one_assignment_may_be_given_as_it_is() -> None:
    assert load("digits", "rounds=3").rounds == 3
