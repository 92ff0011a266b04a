"""`fedgwc data ls|prepare|verify`."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from fedgwc.core.errors import InputError
from fedgwc.data.sources import fetch as sources
from fedgwc.data.sources.catalogue import SOURCES
from fedgwc.data.sources.roots import VARIABLE, data_root
from fedgwc.runs.tables import Table, show


def ls_command(root: Path | None, size: int) -> None:
    """List data sets: present or missing, and where they were looked for."""
    states = [sources.status(name, root, size) for name in SOURCES]
    rows = [[s.name, "missing" if s.missing else "ready", _size(s.disk), s.title] for s in states]
    show(
        Table(["name", "state", "disk", "what"], [["digits", "ready", "0 MB", "handwritten digits, part of scikit-learn"], *rows])
    )
    print(f"\nLooked in {data_root(root)} (--root or {VARIABLE} change that).")
    print("Your own data need nothing of this: --set data.name=arrays --set data.path=FOLDER (docs/data.md, Your own data).")
    if fetchable := [s.name for s in states if s.missing and s.fetchable]:
        where = "" if root is None else f" --root {root}"
        print("\nTo fetch what is missing:\n" + "\n".join(f"  fedgwc data prepare {name}{where}" for name in fetchable))
    for s in states:
        if s.missing and not s.fetchable:
            print(f"\n{s.name} needs {', and '.join(s.missing)}\n  in {' or '.join(map(str, s.looked))}\n  {s.by_hand}")


def prepare_command(name: str, root: Path | None, url: str | None, size: int) -> None:
    needed = sources.disk_needed(name, size)
    folder = data_root(root)
    there = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(there).free
    print(f"{name} needs about {_size(needed)} under {folder / name}; {_size(free)} are free there.", file=sys.stderr)
    if needed > free:
        raise InputError(f"not enough disk for {name}: it needs about {_size(needed)} and {_size(free)} are free in {there}")
    try:
        done = sources.prepare(name, root, url=url, size=size, progress=_Ticker())
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Interrupted. What was fetched is kept; the same command goes on from here.") from None
    for path in done.fetched:
        print(f"fetched {path}")
    if done.decoded:
        print(f"{done.decoded} images are in the cache")
    if done.missing:
        raise InputError(f"still missing: {', and '.join(done.missing)}; {done.by_hand}")
    print(f"{name} is ready in {done.folder}")


def verify_command(name: str, root: Path | None) -> None:
    checks = sources.verify(name, root)
    show(Table(["check", "result", ""], [[c.what, "ok" if c.ok else "WRONG", c.detail] for c in checks]))
    if bad := [c.what for c in checks if not c.ok]:
        raise InputError(f"{name} is not as it should be: {', '.join(bad)}; the table above says why")


class _Ticker:
    """Progress of a download or a decoding, at most twice a second."""

    def __init__(self) -> None:
        self.last = 0.0

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self.last < (0.5 if sys.stderr.isatty() else 5) and done != total:
            return
        self.last = now
        share = f" of {total:,} ({done / total:.0%})" if total else ""
        print(f"{what}: {done:,}{share}", file=sys.stderr, end="\r" if sys.stderr.isatty() else "\n", flush=True)


def _size(n: int) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"
