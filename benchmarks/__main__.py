"""`make bench`: this package beside others, each in a process of its own and in turns; prints and writes docs/speed.md.

`--server` measures and writes the server's own work alone, `--repeats 1` is a quick look.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median

from benchmarks import server
from benchmarks.contenders.workloads import WORKLOADS
from benchmarks.environment import PACKAGES, python_of_others
from fedgwc.engines.settings import cores

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/speed.md"
OURS = "fedgwc"


def contenders(workload: str) -> dict[str, list[str]]:
    """Name -> command."""
    others = python_of_others()
    pfl = ["-m", "benchmarks.contenders.pfl_research", workload]
    return {
        OURS: [sys.executable, "-m", "benchmarks.contenders.ours", workload],
        "pfl-research, 2 processes": [others, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *pfl],
        "pfl-research": [others, *pfl],
        "plain PyTorch loop": [sys.executable, "-m", "benchmarks.contenders.plain", workload],
        "Flower's simulation": [others, "-m", "benchmarks.contenders.flower", workload],
    }


def measured(command: list[str], threads: int) -> dict[str, float]:
    """The last line that a contender prints."""
    threads_of_each = 1 if "torch.distributed.run" in command else threads
    env = os.environ | {"OMP_NUM_THREADS": str(threads_of_each)}
    env |= {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "BEGAN": str(time.perf_counter())}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    result: dict[str, float] = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
    return result


def side_by_side(workload: str, repeats: int) -> dict[str, list[dict[str, float]]]:
    commands = contenders(workload)
    results: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    for turn in range(repeats):  # in turns, so that what else the machine does hits all alike
        for name, command in commands.items():
            results[name].append(measured(command, WORKLOADS[workload].threads))
            print(f"{workload} {turn + 1}/{repeats} {name}: {results[name][-1]}", flush=True)
    return results


def table(workload: str, results: dict[str, list[dict[str, float]]]) -> str:
    ours = [r["seconds"] for r in results[OURS]]
    unit, factor = ("s", 1.0) if median(ours) > 1 else ("ms", 1e3)
    lines = [
        f"| {WORKLOADS[workload].title} | {unit} per round | times fedgwc's | spread | first round after, s |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, rows in results.items():
        ratios = sorted(r["seconds"] / o for r, o in zip(rows, ours, strict=True))
        lines.append(
            f"| {name} | {factor * median(r['seconds'] for r in rows):.3g} | {median(ratios):.3g} "
            f"| {ratios[0]:.3g} to {ratios[-1]:.3g} | {median(r['start'] for r in rows):.1f} |"
        )
    return "\n".join(lines) + "\n"


def head(how: str) -> str:
    return (
        f"Measured on {date.today():%d %B %Y}: {cores()} cores ({server.processor()}), Python {platform.python_version()}, "
        f"torch {version('torch')}, numpy {version('numpy')}{how} Load average at the end: {os.getloadavg()[0]:.1f}.\n"
    )


def write(block: str, text: str) -> None:
    """Put a text between the two marks that the page has for it."""
    print(text)
    begin, end = f"<!-- {block} -->\n", f"<!-- /{block} -->\n"
    before, rest = PAGE.read_text().split(begin)
    PAGE.write_text(before + begin + text + end + rest.split(end)[1])


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--server", action="store_true", help="only the server's own work")
    options = arguments.parse_args()
    if not options.server:
        tables = [table(name, side_by_side(name, options.repeats)) for name in WORKLOADS]
        how = f"; others: {', '.join(PACKAGES)}. Medians of {options.repeats} interleaved repeats, each in a new process; "
        write("bench", "\n".join([head(how + "the spread is that of the ratios."), *tables]))
    rows = server.table(lambda command: measured(command, cores()))
    write("server", "\n".join([head(". The best of 5 processes, from 20,000 clients on of one."), rows]))


if __name__ == "__main__":
    main()
