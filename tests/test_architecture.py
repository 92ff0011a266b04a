"""The house: packages in layers (`lint-imports` has the order), no module that imports itself in the end, nothing loose."""

from __future__ import annotations

import re
from pathlib import Path

import networkx
import pytest

from tests.architecture import PACKAGE, PAGE, ROOT, imports, layers, measures, written

PAGES = [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")]


def test_no_module_imports_itself_in_the_end() -> None:
    assert not [sorted(cycle) for cycle in networkx.strongly_connected_components(imports()) if len(cycle) > 1]


def test_no_module_is_loose() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_every_package_says_what_it_holds() -> None:
    for init in PACKAGE.rglob("__init__.py"):
        assert init.read_text(encoding="utf-8").startswith('"""'), init


def test_the_picture_is_that_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run `make architecture`"


def test_the_page_has_a_line_for_every_package() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| `(\w+\.py)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name, _ in rows] == [name for layer in layers() for name in layer]
    assert all((PACKAGE / name / start).is_file() for name, start in rows)


def test_no_package_is_in_a_circle_of_imports() -> None:
    assert measures().packages_in_circle == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|benchmarks|docs|examples)/[\w./-]+)`", text) + re.findall(r"\]\(([\w./-]+)[)#]", text)
    assert [name for name in named if not (ROOT / name).exists()] == []
