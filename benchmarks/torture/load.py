"""Many clients, many rounds, many runs at once: memory that does not grow, folders that are not shared."""

from __future__ import annotations

import json
import os
import resource
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.torture import children
from benchmarks.torture.damage import Interrupted
from benchmarks.torture.runs import differences, job
from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.fedavg import OneGroup
from fedgwc.algorithms.method import Method
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Algorithm
from fedgwc.core.work import LocalTraining
from fedgwc.data.federation import from_arrays
from fedgwc.engines.meter import Meter
from fedgwc.engines.simulator import Simulator
from fedgwc.models import MODELS
from fedgwc.runs.driver import Checkpoint
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import rounds, run
from fedgwc.runs.tables import Table

Result = dict[str, Any]
POINTS = 200  # how often memory is looked at
AT_ONCE = 10


def resident() -> int:
    """Bytes of memory that the process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def long_run(algorithm: Algorithm[Any], n_clients: int, n_rounds: int, seconds: float) -> dict[str, Any]:
    """An easy task with a run folder: traces, checkpoints and all, but no evaluation. Slope of memory over the second half."""
    rng = np.random.default_rng(0)
    y = np.tile([0, 1], 2 * n_clients)[: 3 * n_clients]
    x = (rng.normal(size=(len(y), 4)) + 2 * y[:, None]).astype(np.float32)
    federation = from_arrays(x, y, np.repeat(np.arange(n_clients), 3), is_test=np.arange(len(y)) % 3 == 2, n_classes=2)
    engine = Simulator(federation, MODELS["mlp"]((4,), 2, hidden=(4,)), LocalTraining(steps=1, batch=2))
    meter = Meter(engine, n_clients)
    seen: list[tuple[int, int]] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place) / "run")
        folder.create({"experiment": {}})
        for number, state in rounds(algorithm, meter, engine.model.vector(), n_clients, n_rounds):
            folder.observe(number, meter.reported)
            meter.clear()
            if number % max(1, n_rounds // POINTS) == 0:
                folder.checkpoint(number, Checkpoint(state, meter.costs, 0.0, 0.0, meter.failures, None))
                seen.append((number, resident()))
            if time.monotonic() - began > seconds:
                break
        folder.close()
    half = np.array(seen[len(seen) // 2 :], np.float64)
    slope = float(np.polyfit(half[:, 0], half[:, 1], 1)[0]) if len(half) > 2 else float("nan")
    return {
        "clients": n_clients,
        "asked": n_rounds,
        "rounds": number,
        "first_mib": round(seen[0][1] / 2**20, 1),
        "last_mib": round(seen[-1][1] / 2**20, 1),
        "bytes_per_round": round(slope, 2),
        "seconds": round(time.monotonic() - began),
        "finite": bool(torch.isfinite(algorithm.clustering(state).models).all()),
    }


def together(n: int, resume: bool) -> dict[str, Any]:
    """n runs in one folder at once: one does the work, the others are told."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        run(job("auto"), home / "whole")
        folder = home / "run"
        if resume:
            children.end(children.start(partial(_short, folder)))
        statuses = [children.end(pid) for pid in [children.start(partial(_try, folder, resume)) for _ in range(n)]]
        return {
            "how": "resumed" if resume else "started",
            "runs": n,
            "did it": statuses.count(0),
            "told": statuses.count(3),
            "other ends": sum(s not in (0, 3) for s in statuses),
            "equal": not differences(home / "whole", folder),
        }


def _short(folder: Path) -> None:
    run(job("auto"), folder, progress=Interrupted(12))


def _try(folder: Path, resume: bool) -> None:
    try:
        run(None if resume else job("auto"), folder, resume=resume)
    except InputError as error:
        os._exit(3 if "another process" in str(error) or "already holds a run" in str(error) else 4)


def measure(clients: int, n_rounds: int, seconds: float) -> Result:
    few = max(10, clients // 20)
    plan = {
        f"fedavg, {clients:,} clients": (Method(OneGroup(), rate=3 / clients), clients, n_rounds),
        f"auto, {few:,} clients": (ALGORITHMS["auto"], few, max(10, n_rounds // 10)),
    }
    found: Result = {"long": {}, "together": []}
    for name, (algorithm, n, r) in plan.items():
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "result.json"
            status = children.end(children.start(partial(_to_file, file, algorithm, n, r, seconds / 2)))
            found["long"][name] = json.loads(file.read_text()) if status == 0 else {"asked": r, "status": status}
    found["together"] = [together(AT_ONCE, resume=False), together(AT_ONCE, resume=True)]
    return found


def _to_file(file: Path, *arguments: Any) -> None:
    file.write_text(json.dumps(long_run(*arguments)))


def tables(found: Result) -> dict[str, Table]:
    def row(name: str, r: dict[str, Any]) -> list[str]:
        memory = f"{r['first_mib']:.0f} to {r['last_mib']:.0f}"
        return [name, f"{r['rounds']:,} of {r['asked']:,}", f"{r['seconds']:,}", memory, f"{r['bytes_per_round']:+.1f}"]

    head = ["run", "rounds", "seconds", "resident memory, MiB", "slope, bytes per round"]
    shared = [[*(str(t[k]) for k in ("how", "runs", "did it", "told", "other ends")), str(t["equal"])] for t in found["together"]]
    return {
        "load": Table(head, [row(name, r) for name, r in found["long"].items()]),
        "together": Table(["ten in one folder", "runs", "did it", "told so", "ended otherwise", "result equal"], shared),
    }
