"""Tables of names, and what an installed package adds to them by its entry points."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedgwc.algorithms import ALGORITHMS, check_algorithm
from fedgwc.core.errors import InputError
from fedgwc.core.tables import Table, UnknownNameError
from fedgwc.models import MODELS

CODE = """
from torch import nn
from fedgwc.algorithms.fedavg import OneGroup
from fedgwc.algorithms.method import Method

calm = Method(OneGroup(), rate=0.5)
nothing = 7

def tiny(shape, n_classes, *, width: int = 4):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], n_classes))
"""
Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return the function that installs the package `elsewhere` with these entry points, as pip would."""

    def with_points(points: str) -> None:
        assert not {"calm", "tiny"} & {*ALGORITHMS, *MODELS}  # the shipped tables have looked around before it is there
        (tmp_path / "elsewhere.py").write_text(CODE)
        info = tmp_path / "elsewhere-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(points)
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()

    yield with_points
    sys.modules.pop("elsewhere", None)


def algorithms() -> Table[Any]:
    """The table of algorithms as a new process has it: installed packages are looked up once."""
    return Table("algorithm", "fedgwc.algorithms", dict(ALGORITHMS), check_algorithm)


def models() -> Table[Any]:
    return Table("model", "fedgwc.models", dict(MODELS))


def test_an_installed_package_adds_entries(install: Install) -> None:
    install("[fedgwc.algorithms]\ncalm = elsewhere:calm\n\n[fedgwc.models]\ntiny = elsewhere:tiny\n")
    for table, shipped, name in ((algorithms(), ALGORITHMS, "calm"), (models(), MODELS, "tiny")):
        assert name in table
        assert set(table) == {*shipped, name}
        assert len(table) == len(shipped) + 1
        assert "elsewhere" not in sys.modules  # it is loaded when it is looked up
        assert table[name] is table.choose(name) is getattr(sys.modules.pop("elsewhere"), name)
        assert name not in shipped


def test_a_taken_name_is_left_out_with_a_warning(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    install("[fedgwc.algorithms]\nfedavg = elsewhere:calm\n")
    table = algorithms()
    with caplog.at_level(logging.WARNING, "fedgwc"):
        assert list(table) == list(ALGORITHMS)
    assert table["fedavg"] is ALGORITHMS["fedavg"]
    assert "the algorithm 'fedavg' of elsewhere:calm is left out: the name is taken" in caplog.text


@pytest.mark.parametrize(
    ("point", "fault"),
    [("nowhere:calm", "ModuleNotFoundError: No module named 'nowhere'"), ("elsewhere:lost", "AttributeError: .*lost")],
)
def test_a_broken_entry_names_its_package_and_the_others_work(point: str, fault: str, install: Install) -> None:
    install(f"[fedgwc.algorithms]\nbroken = {point}\n")
    table = algorithms()
    assert table["fedavg"] is ALGORITHMS["fedavg"]
    message = rf"algorithm 'broken' of an installed package cannot be loaded \({point}\): {fault}.*repair or uninstall"
    with pytest.raises(InputError, match=message):
        table["broken"]


def test_what_is_no_algorithm_is_refused_when_it_is_looked_up(install: Install) -> None:
    install("[fedgwc.algorithms]\nnothing = elsewhere:nothing\n")
    with pytest.raises(InputError, match="nothing in ALGORITHMS has no init, round, clustering"):
        algorithms()["nothing"]


def test_a_table_is_a_dictionary() -> None:
    table: Table[int] = Table("number", "fedgwc.none", {"one": 1})
    table["two"] = 2
    assert dict(table) == {"one": 1, "two": 2}
    assert repr(table) == "Table of numbers: one, two"
    del table["one"]
    assert list(table) == ["two"]
    with pytest.raises(KeyError):
        table["one"]


def test_an_unknown_name_is_told_with_what_there_is() -> None:
    table: Table[int] = Table("fruit", "fedgwc.none", {"plum": 1, "quince": 2})
    with pytest.raises(UnknownNameError, match=r"unknown fruit 'plumm' \(did you mean plum\?\); choose from plum, quince"):
        table.choose("plumm")
    with pytest.raises(InputError, match=r"unknown fruit \['plum'\]; choose from plum, quince$"):
        table.choose(["plum"])
