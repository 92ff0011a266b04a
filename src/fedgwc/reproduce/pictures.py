"""The paper's figures, drawn by the report from the runs of a figure's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fedgwc.reproduce.lines import Line, changes
from fedgwc.reproduce.paper import Entry

if TYPE_CHECKING:
    from fedgwc.report.content import Page
    from fedgwc.report.render import Picture


def draw(name: str, entry: Entry, lines: Sequence[Line], folder: Path) -> list[Path]:
    """Draw a figure as PNG and SVG files.

    None where there is nothing to show. Needs the extra `report`.
    """
    from fedgwc.report.render import write_files

    found = pictures(name, entry, lines)
    return write_files(found, folder) if found else []


def pictures(name: str, entry: Entry, lines: Sequence[Line]) -> list[Picture]:
    """Draw the pictures of a figure.

    Several methods are drawn together with all their seeds, a single one by the first seed of what is nearest to today's.
    """
    run = [line for line in lines if line.runs]
    if not run:
        return []
    together = len(entry.rows) > 1
    paths = [r.path for line in run for r in line.runs] if together else [min(run, key=lambda x: len(changes(x))).runs[0].path]
    found = [p for p in _page(tuple(paths), together).pictures if any(fnmatch(p.name, wanted) for wanted in entry.pictures)]
    return [replace(p, name=f"{name}-{p.name}") for p in found]


@cache
def _page(paths: tuple[Path, ...], together: bool) -> Page:
    """Build a run's page once, as two figures often show the same run."""
    from fedgwc.report.load import load
    from fedgwc.report.one_run import one_run
    from fedgwc.report.several_runs import several_runs
    from fedgwc.report.theme import needs_extra

    needs_extra()
    loaded = [load(path) for path in paths]
    return several_runs(loaded) if together else one_run(loaded[0])
