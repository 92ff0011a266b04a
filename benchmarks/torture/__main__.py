"""`make torture`: all parts, or those named; `--short` for a look in a few minutes, which leaves the published tables alone."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: children are forked, and there are many

from benchmarks.torture import advisories, attacks, crashes, damage, fuzz, load, page, reports
from fedgwc.reproduce.provenance import provenance
from fedgwc.runs.tables import Table, show

RESULTS = Path(__file__).parents[2] / "results" / "torture"
PROVENANCE = RESULTS / "provenance.json"  # of each part
PRINTED = ("fuzz",)  # counts that every change of a reader makes old: they are shown, and not kept
Part = tuple[Callable[[], Any], Callable[[], Any], Callable[[Any], dict[str, Table]]]  # the long one, the short one, its tables

PARTS: dict[str, Part] = {
    "crashes": (lambda: crashes.measure(1000, 1200), lambda: crashes.measure(40, 60), crashes.tables),
    "reports": (lambda: reports.measure(40, 300), lambda: reports.measure(3, 30), reports.tables),
    "damage": (lambda: damage.measure(40, 300), lambda: damage.measure(2, 30), damage.tables),
    "fuzz": (lambda: fuzz.measure(120_000, 1200), lambda: fuzz.measure(4_000, 60), fuzz.tables),
    "attacks": (lambda: attacks.measure(3, 5400), lambda: attacks.measure(1, 60), attacks.tables),
    "load": (lambda: load.measure(20_000, 100_000, 1800), lambda: load.measure(2_000, 2_000, 60), load.tables),
    "advisories": (advisories.measure, advisories.measure, advisories.tables),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torture", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--tables", action="store_true", help="measure nothing: write the tables of the last results anew")
    asked = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in asked.parts or PARTS:
        if asked.tables and name in PRINTED:
            continue
        long, short, tables = PARTS[name]
        kept = RESULTS / f"{name}.json"
        print(f"\n{name}", flush=True)
        found = json.loads(kept.read_text()) if asked.tables else short() if asked.short else long()
        for table in tables(found).values():
            show(table)
        if not asked.short and name not in PRINTED:
            kept.write_text(json.dumps(found, indent=1) + "\n")
            page.write(tables(found))
        if not asked.short and name not in PRINTED and not asked.tables:
            about = json.loads(PROVENANCE.read_text()) if PROVENANCE.exists() else {}
            about[name] = provenance(f"python -m benchmarks.torture {name}")
            PROVENANCE.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
