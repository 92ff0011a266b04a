"""The public names: each is there, and what type checkers are told is what runs."""

from __future__ import annotations

import ast
from pathlib import Path

import fedgwc


def told_to_type_checkers() -> set[str]:
    tree = ast.parse(Path(fedgwc.__file__).read_text(encoding="utf-8"))
    [told] = [node for node in tree.body if isinstance(node, ast.If)]
    return {str(alias.asname) for node in told.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_type_checkers_know_the_same_names() -> None:
    assert told_to_type_checkers() == set(fedgwc.__all__)


def test_every_name_loads() -> None:
    for name in fedgwc.__all__:  # asked for as if no import had bound it yet
        assert fedgwc.__getattr__(name) is getattr(fedgwc, name)
    assert {"data", "metrics", "models"} < set(dir(fedgwc))
