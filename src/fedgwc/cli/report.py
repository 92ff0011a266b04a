"""`fedgwc report`."""

from __future__ import annotations

from pathlib import Path

from fedgwc.core.errors import InputError
from fedgwc.io.atomic import write_atomically
from fedgwc.io.files import regular_file
from fedgwc.report import build
from fedgwc.runs.delayed_progress import DelayedWatcher
from fedgwc.runs.progress import watcher

PAGE = b"<!doctype html>"  # how all of them begin


def report_command(runs: list[Path], out: Path, figures: Path | None) -> None:
    if out.is_dir():
        raise InputError(f"{out} is a folder; name the file to write, for example -o {out / 'report.html'}")
    if out.exists() and not _is_page(out):
        raise InputError(f"{out} is there and no report; name another file, for example -o {out.with_name('report.html')}")
    if figures is not None and figures.exists() and not figures.is_dir():
        raise InputError(f"--figures wants a folder, and {figures} is a file")
    try:
        _write(runs, out, figures)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Interrupted. The runs are as they were; the same command begins the page anew.") from None


def _is_page(path: Path) -> bool:
    """Tell whether a file is an earlier report, which may be overwritten.

    A file of a run, or anything else, may not.
    """
    with regular_file(path).open("rb") as file:
        return file.read(len(PAGE)) == PAGE


def _write(runs: list[Path], out: Path, figures: Path | None) -> None:
    progress = DelayedWatcher(watcher())
    page = build(runs, progress)
    from fedgwc.report.page import html
    from fedgwc.report.render import write_files

    text = html(page, progress).encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text)
    print(f"Written: {out} ({len(text) / 1e6:.1f} MB, {len(page.pictures)} figures)")
    if figures is not None:
        written = write_files(page.pictures, figures, progress)
        print(f"Written: {figures} ({len(written)} files)")
