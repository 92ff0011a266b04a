"""The picture of the layers in ARCHITECTURE.md, drawn from the code: `make architecture` writes it anew."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

import grimp
import networkx

import fedgwc

PACKAGE = Path(fedgwc.__file__).parent
ROOT = Path(__file__).parent.parent
PAGE = ROOT / "ARCHITECTURE.md"


@dataclass(frozen=True)
class Measures:
    """Numbers that show how easily a house of modules can be seen through."""

    modules: int
    lines: int
    packages: int
    loose: int  # modules in no package
    packages_in_circle: int  # packages, and loose modules, that import one another directly or through others
    modules_in_circle: int


BEFORE = Measures(modules=207, lines=22_893, packages=10, loose=36, packages_in_circle=18, modules_in_circle=6)  # commit 8dd3997


def imports() -> networkx.DiGraph[str]:
    """Return an arrow for every import, those for type checkers included; `fedgwc` itself only loads names on demand."""
    graph = grimp.build_graph("fedgwc", cache_dir=None)
    modules = sorted(graph.modules - {"fedgwc"})
    found: networkx.DiGraph[str] = networkx.DiGraph()
    found.add_nodes_from(modules)
    found.add_edges_from((m, other) for m in modules for other in graph.find_modules_directly_imported_by(m) - {"fedgwc"})
    return found


def between_packages(modules: networkx.DiGraph[str]) -> networkx.DiGraph[str]:
    """Return the arrows between packages; a loose module counts as one."""
    found: networkx.DiGraph[str] = networkx.DiGraph()
    found.add_edges_from({(a.split(".")[1], b.split(".")[1]) for a, b in modules.edges})
    found.remove_edges_from(list(networkx.selfloop_edges(found)))
    return found


def layers() -> list[list[str]]:
    """Return the packages of every layer, the lowest first, as import-linter holds them to it."""
    [contract] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    return [layer.split(" | ") for layer in reversed(contract["layers"])]


def length(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def largest_circle(graph: networkx.DiGraph[str]) -> int:
    """Count the nodes that can all be reached from one another; 0 where there are no two."""
    largest = max(map(len, networkx.strongly_connected_components(graph)))
    return largest if largest > 1 else 0


def measures() -> Measures:
    """Measure the package as it is."""
    modules, sources = imports(), list(PACKAGE.rglob("*.py"))
    return Measures(
        modules=len(sources),
        lines=sum(map(length, sources)),
        packages=len(list(PACKAGE.glob("*/__init__.py"))),
        loose=len(list(PACKAGE.glob("*.py"))) - 2,  # __init__ and __main__ have to be there
        packages_in_circle=largest_circle(between_packages(modules)),
        modules_in_circle=largest_circle(modules),
    )


def picture() -> str:
    """Draw a row for every package, the highest first, with a mark below each package that it imports."""
    arrows = between_packages(imports())
    names = [name for layer in layers() for name in layer]
    level = {name: number for number, layer in enumerate(layers(), 1) for name in layer}
    lines = [" " * 30 + "imports  " + "".join(f"{level[name]:>3}" for name in names), "layer         modules   lines"]
    for name in reversed(names):
        sources = list((PACKAGE / name).rglob("*.py"))
        marks = "".join("  ■" if arrows.has_edge(name, other) else "  ·" for other in names[: names.index(name)])
        size = f"{len(sources):>8}{round(sum(map(length, sources)), -2):>8,}"
        lines.append(f"{level[name]:>2}  {name:<10}{size}         {marks}".rstrip())
    return "```\n" + "\n".join(lines) + "\n```\n"


def comparison() -> str:
    """Write the table of what was and what is."""
    now, before = measures(), BEFORE
    rows = (
        ("modules", before.modules, now.modules),
        ("lines, rounded", round(before.lines, -2), round(now.lines, -2)),
        ("packages", before.packages, now.packages),
        ("modules in no package", before.loose, now.loose),
        ("packages and loose modules in the largest circle of imports", before.packages_in_circle, now.packages_in_circle),
        ("modules in the largest circle of imports", before.modules_in_circle, now.modules_in_circle),
    )
    table = "".join(f"| {what} | {was:,} | {is_:,} |\n" for what, was, is_ in rows)
    return "| | before | now |\n|---|---:|---:|\n" + table


def written(page: str) -> str:
    """Return the page with its picture and its table made anew."""
    for name, block in (("layers", picture()), ("comparison", comparison())):
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
        before, rest = page.split(begin)
        page = before + begin + block + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
