"""Kill the writing of a report: there is a whole one or none, and the run it is about is as it was."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torture import children
from benchmarks.torture.crashes import deadly
from benchmarks.torture.runs import job
from fedgwc.cli.report import report_command
from fedgwc.runs.loop import run
from fedgwc.runs.tables import Table

Result = dict[str, Any]


def measure(times: int, seconds: float, seed: int = 0) -> Result:
    rng = np.random.default_rng(seed)
    stop = time.monotonic() + seconds
    found: Result = {"kills": 0, "whole or none": 0, "run untouched": 0, "equal when written again": 0}
    with tempfile.TemporaryDirectory() as place:
        about, reference, out = (Path(place) / name for name in ("run", "reference.html", "report.html"))
        run(job("auto"), about)
        _write(about, reference, contextlib.nullcontext())  # in this process: what children are forked from is warm
        began = time.monotonic()
        _write(about, reference, contextlib.nullcontext())
        lasts = time.monotonic() - began
        whole, before = reference.read_bytes(), _digest(about)
        while found["kills"] < times and time.monotonic() < stop:
            out.unlink(missing_ok=True)
            at = rng.integers(3)  # any time, before the flush to disk, or around the rename
            moment = (contextlib.nullcontext(), deadly("os.fsync", 1, False), deadly("os.replace", 1, bool(rng.integers(2))))[at]
            pid = children.start(partial(_write, about, out, moment))
            status = children.kill_after(pid, float(rng.uniform(0, lasts))) if at == 0 else children.end(pid)
            if status == 0:
                continue
            found["kills"] += 1
            found["whole or none"] += not out.exists() or out.read_bytes() == whole
            found["run untouched"] += _digest(about) == before
            children.end(children.start(partial(_write, about, out, contextlib.nullcontext())))
            found["equal when written again"] += out.read_bytes() == whole
    return found


def _write(about: Path, out: Path, moment: Any) -> None:
    with moment, open("/dev/null", "w") as nowhere, contextlib.redirect_stdout(nowhere):
        report_command([about], out, None)


def _digest(folder: Path) -> str:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return hashlib.sha256(b"".join(str(p).encode() + p.read_bytes() for p in files)).hexdigest()


def tables(found: Result) -> dict[str, Table]:
    return {"reports": Table([f"report writing: {k}" if k == "kills" else k for k in found], [[str(v) for v in found.values()]])}
