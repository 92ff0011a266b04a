"""`fedgwc reproduce`: the paper's tables and figures, run and compared."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedgwc.core.errors import InputError
from fedgwc.core.settings import lookup
from fedgwc.reproduce.execute import execute
from fedgwc.reproduce.lines import Line, lines_of
from fedgwc.reproduce.outcome import read
from fedgwc.reproduce.paper import FEDGWC, OURS, Entry, Row, paper, varied
from fedgwc.reproduce.plan import Planned, own_settings, plan
from fedgwc.reproduce.provenance import provenance
from fedgwc.reproduce.render import csv_text, markdown, tables
from fedgwc.reproduce.verdict import SEEDS
from fedgwc.runs.tables import show

ALL = "all"
PAPERS = tuple(preset for preset in FEDGWC if preset != OURS)


def reproduce_command(
    names: Sequence[str],
    scale: str,
    n_seeds: int | None,
    out: Path,
    sets: Sequence[str] = (),
    presets: Sequence[str] = PAPERS,
    jobs: int = 0,
) -> None:
    if not names:
        for name, entry in paper().items():
            print(f"{name:20} {entry.about} [{entry.where}]")
        return
    entries = paper() if ALL in names else {name: lookup(paper(), name, "table or figure") for name in names}
    for preset in presets:
        lookup(dict.fromkeys(FEDGWC), preset, "preset of FedGWC")
    if fixed := [s for s in sets if s.partition("=")[0] in varied() | {"algorithm.name", "seed"}]:
        raise InputError(f"--set {fixed[0]}: that is what the tables themselves vary; `fedgwc compare` runs anything else")
    n_seeds = n_seeds or (SEEDS if scale == "full" else 1)
    runs = plan((row for e in entries.values() for row in e.rows), presets, n_seeds, scale, sets)
    try:
        failed = execute(runs, out / "runs", provenance(_command(names, scale, n_seeds, sets, presets)), jobs)
        _write(entries, runs, failed, scale, out)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Interrupted and saved. The same command goes on from here.") from None
    print(f"\nWritten: {out} (the runs; a .md and a .csv file for each table and figure)")


def _write(entries: Mapping[str, Entry], runs: Sequence[Planned], failed: dict[str, str], scale: str, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)  # there is none yet if no run could be made
    outcomes = [read(out / "runs" / r.name) for r in runs if r.name not in failed]
    for name, entry in entries.items():
        _present(name, entry, lines_of(entry, outcomes, lambda row: _needs(row, runs, failed)), out / f"{name}-{scale}")


def _present(name: str, entry: Entry, lines: list[Line], out: Path) -> None:
    print(f"\n{name}: {entry.about}. {entry.where} of the paper.")
    found = tables(lines)
    for table in found:
        show(table)
    out.with_suffix(".md").write_text("\n".join(map(markdown, found)), encoding="utf-8")
    out.with_suffix(".csv").write_text(csv_text(name, lines), encoding="utf-8")
    if entry.pictures:
        _draw(name, entry, lines, out)


def _draw(name: str, entry: Entry, lines: list[Line], out: Path) -> None:
    from fedgwc.reproduce.pictures import draw

    try:
        written = draw(name, entry, lines, out)
    except InputError as error:
        print(f"not drawn: {error}", file=sys.stderr)
        return
    if written:
        print(f"Drawn: {out} ({', '.join(p.name for p in written if p.suffix == '.png')}, also as .svg)")


def _needs(row: Row, runs: Sequence[Planned], failed: dict[str, str]) -> str:
    """Say what a row lacks, briefly if it is a data set."""
    wanted = (row.recipe, row.algorithm, own_settings(row, row.algorithm))
    for r in runs:
        if (r.row.recipe, r.row.algorithm, own_settings(r.row, r.row.algorithm)) == wanted and r.name in failed:
            data = r.job.tables["data"].get("name")
            missing = failed[r.name].startswith(f"no {data} data")
            return f"needs {data}: fedgwc data prepare {data}" if missing else failed[r.name]
    return ""


def _command(names: Sequence[str], scale: str, n_seeds: int, sets: Sequence[str], presets: Sequence[str]) -> str:
    """Return the command that repeats these runs, with defaults written out."""
    words = ["fedgwc", "reproduce", *names, "--scale", scale, "--seeds", str(n_seeds)]
    words += [word for s in sets for word in ("--set", s)]
    words += ["--fedgwc", ",".join(presets)] if tuple(presets) != PAPERS else []
    return shlex.join(words)
