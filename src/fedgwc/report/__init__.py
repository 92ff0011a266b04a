"""Reports and figures: one self-contained page from run folders alone."""

from __future__ import annotations

from pathlib import Path

from fedgwc.report.content import Page
from fedgwc.runs.delayed_progress import map_with_progress
from fedgwc.runs.progress import SILENT, Watcher


def build(paths: list[Path], progress: Watcher = SILENT) -> Page:
    """Build one run's page, or the comparison of several.

    Needs the extra `report`.
    """
    from fedgwc.comparison.outcomes import find_runs
    from fedgwc.report.load import load
    from fedgwc.report.one_run import one_run
    from fedgwc.report.several_runs import several_runs
    from fedgwc.report.theme import needs_extra

    needs_extra()
    runs = map_with_progress(load, find_runs(paths), "runs read", progress)
    return one_run(runs[0], progress) if len(runs) == 1 else several_runs(runs)
