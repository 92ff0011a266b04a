"""The house: packages in layers (`lint-imports` has the order), no module that imports itself in the end, nothing loose."""

from __future__ import annotations

from pathlib import Path

import grimp
import networkx
import pytest

import fedgwc

PACKAGE = Path(fedgwc.__file__).parent


@pytest.fixture(scope="module")
def imports() -> networkx.DiGraph:
    """An arrow for every import, those for type checkers included; `fedgwc` itself only loads names on demand."""
    graph, found = grimp.build_graph("fedgwc", cache_dir=None), networkx.DiGraph()
    for module in graph.modules - {"fedgwc"}:
        found.add_edges_from((module, other) for other in graph.find_modules_directly_imported_by(module) - {"fedgwc"})
    return found


def test_no_module_imports_itself_in_the_end(imports: networkx.DiGraph) -> None:
    assert not [sorted(cycle) for cycle in networkx.strongly_connected_components(imports) if len(cycle) > 1]


def test_no_module_is_loose() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_every_package_says_what_it_holds() -> None:
    for init in PACKAGE.rglob("__init__.py"):
        assert init.read_text(encoding="utf-8").startswith('"""'), init
